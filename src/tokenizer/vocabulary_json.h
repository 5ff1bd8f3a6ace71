// A vocabulary written as a JSON object: token -> id.
#pragma once

#include "base/error.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

inline Result<Vocabulary> ReadVocabularyObject(const JsonField& field) {
  LS_TRY(const simdjson::dom::object entries, field.Object());
  size_t count = 0, bytes = 0;
  for (const auto& [text, id] : entries) {  // object::size() saturates at 2^24 - 1
    ++count;
    bytes += text.size();
  }
  Vocabulary vocabulary;
  vocabulary.Reserve(count, bytes);
  for (const auto& [text, id] : entries) {
    int64_t value = 0;
    if (id.get(value) != simdjson::SUCCESS) {
      return InputError("{}[\"{}\"] is not an id (a whole number below 2^63)", field.path(),
                        text.substr(0, 60));
    }
    LS_RETURN_IF_ERROR(vocabulary.Add(text, value, count));
  }
  return vocabulary;
}

}  // namespace lockstep
