// Known: what this build can read, from the tables that read it: architectures and tensor types.
// docs/known.md is its text.
#pragma once

#include <string>

#include "base/json.h"

namespace lockstep {

std::string KnownText();  // Markdown
Json KnownJson();
Json FaultsJson();  // the rows of faults/catalog.h; FaultsPage() is their text

}  // namespace lockstep
