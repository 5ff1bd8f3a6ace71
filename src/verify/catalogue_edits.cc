#include "verify/catalogue_edits.h"

#include "faults/catalog.h"

namespace lockstep {

std::vector<Hypothesis> CatalogueEdits(const ModelSpec& spec) {
  std::vector<Hypothesis> out;
  for (const Fault& fault : KnownFaults())
    for (Edit& edit : fault.edits(spec))
      out.push_back(
          {std::move(edit), Origin::kCatalogue, std::string(fault.id), std::string(fault.what)});
  return out;
}

}  // namespace lockstep
