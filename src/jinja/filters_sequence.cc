// Filters over sequences. As in Jinja2, map, select, items, batch, slice, unique and reverse give
// generators: nothing is computed, and no error raised, before somebody takes the items.
#include <algorithm>
#include <memory>
#include <unordered_set>

#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

Value IgnoreCase(Runtime& r, const Value& value) {
  // With the budget gone the next step fails; the key does not matter any more.
  if (!value.is_string() || !r.budget()->ChargeText(value.text().size(), Work::kCharacters))
    return value;
  return r.String(ToLower(value.text()));
}

struct Keyed {
  Value key, item;
};

// sorted(): stable, by `<` alone; the first failed comparison ends it.
Expected<void> SortKeyed(Runtime& r, std::vector<Keyed>& items, bool reverse) {
  std::optional<TemplateError> failed;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (failed) return false;
    const Expected<bool> result = Less(a.key, b.key, "<", r.budget());
    if (!result) failed = result.error();
    return result && *result;
  };
  if (reverse) {  // equal items keep their order in reverse too
    std::reverse(items.begin(), items.end());
    std::stable_sort(items.begin(), items.end(), less);
    std::reverse(items.begin(), items.end());
  } else {
    std::stable_sort(items.begin(), items.end(), less);
  }
  if (failed) return tl::unexpected(*failed);
  return {};
}

std::vector<Value> Items(const std::vector<Keyed>& keyed) {
  std::vector<Value> items;
  for (const Keyed& k : keyed) items.push_back(k.item);
  return items;
}

Expected<Value> Sort(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  // attribute may name several: "age,name".
  std::vector<AttributePath> paths;
  if (bound.has(2) && bound[2].is_string()) {
    std::string_view rest = bound[2].text();
    while (r.budget()->Step()) {
      const size_t comma = rest.find(',');
      paths.emplace_back(r, r.String(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(r, bound.Or(2, Value()));
  }
  LS_TRY(std::vector<Value> items, ToVector(r, value));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      LS_TRY(Value key, path.Get(r, item));
      keys.push_back(bound.Flag(1) ? key : IgnoreCase(r, key));
    }
    LS_TRY(Value key, MakeList(r.budget(), std::move(keys)));
    keyed.push_back({std::move(key), std::move(item)});
  }
  LS_RETURN_IF_ERROR(SortKeyed(r, keyed, bound.Flag(0)));
  return MakeList(r.budget(), Items(keyed));
}

Expected<Value> DictSort(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  LS_TRY(const std::string by, bound.Text(1, "key"));
  if (by != "key" && by != "value")
    return Raise(ErrorKind::kTemplateRuntime, "You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (!value.is(Kind::kDict))
    return PythonError("'{}' object has no attribute 'items'", TypeName(value));
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict().entries) {
    if (!r.budget()->Step()) return tl::unexpected(r.budget()->Error());
    const Value& sort_key = by == "key" ? key : item;
    LS_TRY(Value pair, MakeList(r.budget(), {key, item}, Kind::kTuple));
    keyed.push_back({bound.Flag(0) ? sort_key : IgnoreCase(r, sort_key), std::move(pair)});
  }
  LS_RETURN_IF_ERROR(SortKeyed(r, keyed, bound.Flag(2)));
  return MakeList(r.budget(), Items(keyed));
}

Expected<Value> GroupBy(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  const AttributePath path(r, bound[0]);
  const Value fallback = bound.Or(1, Value());
  LS_TRY(std::vector<Value> items, ToVector(r, value));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    LS_TRY(Value key, path.Get(r, item, &fallback));
    keyed.push_back({bound.Flag(2) ? key : IgnoreCase(r, key), std::move(item)});
  }
  LS_RETURN_IF_ERROR(SortKeyed(r, keyed, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    const Value key = keyed[i].key;
    std::vector<Value> members;
    for (; i < keyed.size() && Equal(keyed[i].key, key, r.budget()); ++i)
      members.push_back(keyed[i].item);
    if (members.empty()) return tl::unexpected(r.budget()->Error());
    LS_TRY(Value real_key, path.Get(r, members[0], &fallback));
    LS_TRY(Value list, MakeList(r.budget(), std::move(members)));
    LS_TRY(Value group, MakeList(r.budget(), {std::move(real_key), std::move(list)}, Kind::kTuple));
    group.As<ListObject>().group = true;
    groups.push_back(std::move(group));
  }
  return MakeList(r.budget(), std::move(groups));
}

Expected<Value> Unique(Runtime& r, const Value& value, const Bound& bound,
                       const Arguments& arguments) {
  struct State {
    std::optional<Iterator> iterator;
    std::unordered_multimap<size_t, Value> seen;
  };
  auto state = std::make_shared<State>();
  const AttributePath path(r, bound.Or(1, Value()));
  const bool case_sensitive = bound.Flag(0);
  return MakeGenerator(
      r.budget(),
      [&r, state, path, case_sensitive, value](Value* out) -> Expected<bool> {
        if (!state->iterator) {
          LS_TRY(state->iterator, Iterator::Over(value));
        }
        for (Value item;;) {
          LS_TRY(const bool more, state->iterator->Next(r, &item));
          if (!more) return false;
          LS_TRY(Value key, path.Get(r, item));
          if (!case_sensitive) key = IgnoreCase(r, key);
          LS_TRY(const size_t hash, Hash(key, r.budget()));
          bool known = false;
          const auto [first, last] = state->seen.equal_range(hash);
          for (auto it = first; it != last; ++it) known |= Equal(it->second, key, r.budget());
          if (known) continue;
          if (!r.budget()->Fits((state->seen.size() + 1) * 96))
            return Raise(ErrorKind::kLimit, "the items of unique would not fit in memory");
          state->seen.emplace(hash, std::move(key));
          *out = std::move(item);
          return true;
        }
      },
      value, arguments);
}

Expected<Value> Extreme(Runtime& r, const Value& value, const Bound& bound, bool maximum) {
  const AttributePath path(r, bound.Or(1, Value()));
  LS_TRY(Iterator iterator, Iterator::Over(value));
  std::optional<Keyed> best;
  for (Value item;;) {
    LS_TRY(const bool more, iterator.Next(r, &item));
    if (!more) break;
    LS_TRY(Value key, path.Get(r, item));
    if (!bound.Flag(0)) key = IgnoreCase(r, key);
    if (best) {
      LS_TRY(const bool better, maximum ? Less(best->key, key, ">", r.budget())
                                        : Less(key, best->key, "<", r.budget()));
      if (!better) continue;
    }
    best = Keyed{std::move(key), item};
  }
  if (!best) return MakeUndefined(r.budget(), "No aggregated item, sequence was empty.");
  return best->item;
}
Expected<Value> Min(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  return Extreme(r, value, bound, false);
}
Expected<Value> Max(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  return Extreme(r, value, bound, true);
}

Expected<Value> Sum(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  const AttributePath path(r, bound.Or(0, Value()));
  Value total = bound.Or(1, Value::Integer(0));
  if (total.is_string()) return PythonError("sum() can't sum strings [use ''.join(seq) instead]");
  LS_TRY(Iterator iterator, Iterator::Over(value));
  for (Value item;;) {
    LS_TRY(const bool more, iterator.Next(r, &item));
    if (!more) return total;
    LS_TRY(item, path.Get(r, item));
    LS_TRY(total, BinaryOp(r, '+', total, item));
  }
}

Expected<Value> Join(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  const AttributePath path(r, bound.Or(1, Value()));
  const Value delimiter = bound.Or(0, r.String(""));
  LS_TRY(std::string separator, Str(delimiter, r.budget()));
  LS_TRY(std::vector<Value> items, ToVector(r, value));
  bool markup = false;  // under autoescape, one marked item marks (and escapes) all
  for (Value& item : items) {
    LS_TRY(item, path.Get(r, item));
    markup |= r.autoescape() && item.is_string() && item.markup();
  }
  markup |= r.autoescape() && delimiter.is_string() && delimiter.markup();
  if (markup && !(delimiter.is_string() && delimiter.markup()))
    separator = Escape(separator, r.budget());
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    LS_TRY(std::string text, Str(items[i], r.budget()));
    if (markup && !(items[i].is_string() && items[i].markup())) text = Escape(text, r.budget());
    if (i > 0) out += separator;
    out += text;
    LS_RETURN_IF_ERROR(r.Reserve(text.size() + separator.size()));
    if (!r.budget()->Fits(out.size() + separator.size()))
      return Raise(ErrorKind::kLimit, "the joined text would not fit in the memory allowed");
  }
  return r.String(std::move(out)).AsMarkup(markup);
}

Expected<Value> First(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(Iterator iterator, Iterator::Over(value));
  Value item;
  LS_TRY(const bool more, iterator.Next(r, &item));
  if (!more) return MakeUndefined(r.budget(), "No first item, sequence was empty.");
  return item;
}

// What reversed() takes: sequences and dicts, not generators.
bool IsReversible(const Value& value) { return IsIterable(value) && !value.is(Kind::kGenerator); }

Expected<Value> Last(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (!IsReversible(value)) return PythonError("'{}' object is not reversible", TypeName(value));
  LS_TRY(const std::vector<Value> items, ToVector(r, value));
  if (items.empty()) return MakeUndefined(r.budget(), "No last item, sequence was empty.");
  return items.back();
}

// A template must render the same text twice, so `random` always takes the first item.
Expected<Value> Random(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const int64_t length, Length(value));
  if (length == 0) return MakeUndefined(r.budget(), "No random item, sequence was empty.");
  return GetItem(r, value, Value::Integer(0));
}

Expected<Value> Reverse(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (value.is_string()) return Slice(r, value, Value(), Value(), Value::Integer(-1));
  if (!IsIterable(value)) return Raise(ErrorKind::kTemplateRuntime, "argument must be iterable");
  Expected<std::vector<Value>> taken = ToVector(r, value);
  if (!taken && taken.error().kind == ErrorKind::kPython)  // an error inside a generator
    return Raise(ErrorKind::kTemplateRuntime, "argument must be iterable");
  LS_TRY(std::vector<Value> items, std::move(taken));
  std::reverse(items.begin(), items.end());
  LS_TRY(const Value list, MakeList(r.budget(), std::move(items)));
  if (!IsReversible(value)) return list;
  LS_TRY(Iterator iterator, Iterator::Over(list));
  return MakeGenerator(
      r.budget(),
      [&r, it = std::make_shared<Iterator>(std::move(iterator))](Value* out) {
        return it->Next(r, out);
      },
      list);
}

Expected<Value> LengthFilter(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (value.is(Kind::kLoop)) {
    LS_TRY(const int64_t length, r.ObjectLength(value));
    return Value::Integer(length);
  }
  LS_TRY(const int64_t length, Length(value));
  return Value::Integer(length);
}

Expected<Value> ListFilter(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(std::vector<Value> items, ToVector(r, value));
  return MakeList(r.budget(), std::move(items));
}

Expected<Value> ItemsFilter(Runtime& r, const Value& value, const Bound&,
                            const Arguments& arguments) {
  auto iterator = std::make_shared<std::optional<Iterator>>();
  return MakeGenerator(
      r.budget(),
      [&r, iterator, value](Value* out) -> Expected<bool> {
        if (value.is_undefined()) return false;
        if (!*iterator) {
          if (!value.is(Kind::kDict)) return PythonError("Can only get item pairs from a mapping.");
          LS_TRY(*iterator,
                 Iterator::Over(Value(Kind::kDictView, std::make_shared<DictViewObject>(
                                                           r.budget(), value, ViewKind::kItems))));
        }
        return (*iterator)->Next(r, out);
      },
      value, arguments);
}

Expected<Value> Batch(Runtime& r, const Value& value, const Bound& bound,
                      const Arguments& arguments) {
  auto iterator = std::make_shared<std::optional<Iterator>>();
  return MakeGenerator(
      r.budget(),
      [&r, iterator, value, bound](Value* out) -> Expected<bool> {
        LS_TRY(const int64_t count, bound.Integer(0, 1));
        if (!*iterator) {
          LS_TRY(*iterator, Iterator::Over(value));
          if (count == 0 && Truth(value)) {  // an empty row is "full" at once
            LS_TRY(*out, MakeList(r.budget(), {}));
            return true;
          }
        }
        std::vector<Value> row;
        // A count below one is never reached: everything goes into one row (Jinja2 compares with
        // ==).
        while (count < 1 || static_cast<int64_t>(row.size()) < count) {
          Value item;
          LS_TRY(const bool more, (*iterator)->Next(r, &item));
          if (!more) break;
          LS_RETURN_IF_ERROR(r.Reserve(sizeof(Value)));
          row.push_back(std::move(item));
        }
        if (row.empty()) return false;
        if (bound.has(1) && !bound[1].is_none() && static_cast<int64_t>(row.size()) < count) {
          LS_RETURN_IF_ERROR(r.Reserve(static_cast<uint64_t>(count) * sizeof(Value)));
          row.resize(static_cast<size_t>(count), bound[1]);
        }
        LS_TRY(*out, MakeList(r.budget(), std::move(row)));
        return true;
      },
      value, arguments);
}

Expected<Value> SliceFilter(Runtime& r, const Value& value, const Bound& bound,
                            const Arguments& arguments) {
  struct State {
    std::optional<std::vector<Value>> items;
    int64_t number = 0;
    size_t position = 0;
  };
  auto state = std::make_shared<State>();
  return MakeGenerator(
      r.budget(),
      [&r, state, value, bound](Value* out) -> Expected<bool> {
        LS_TRY(const int64_t slices, bound.Integer(0, 1));
        if (!state->items) {
          LS_TRY(state->items, ToVector(r, value));
          if (slices == 0) return PythonError("integer division or modulo by zero");
        }
        if (state->number >= slices) return false;
        const size_t n = state->items->size();
        const size_t extra = n % static_cast<size_t>(slices);
        size_t size = n / static_cast<size_t>(slices);
        const bool longer = static_cast<size_t>(state->number) < extra;
        if (longer) ++size;
        const auto begin = state->items->begin() + static_cast<std::ptrdiff_t>(state->position);
        std::vector<Value> part(begin, begin + static_cast<std::ptrdiff_t>(size));
        state->position += size;
        ++state->number;
        if (!longer && bound.has(1) && !bound[1].is_none()) part.push_back(bound[1]);
        LS_RETURN_IF_ERROR(r.Reserve(part.size() * sizeof(Value)));
        LS_TRY(*out, MakeList(r.budget(), std::move(part)));
        return true;
      },
      value, arguments);
}

using ItemFunction = std::function<Expected<Value>(const Value&)>;

// map(attribute=..., default=...) or map('filter', arguments...).
Expected<ItemFunction> PrepareMap(Runtime& r, const Arguments& arguments) {
  const Value* attribute = nullptr;
  Value fallback;
  for (const auto& [name, value] : arguments.named)
    if (name == "attribute") attribute = &value;
  if (arguments.positional.empty() && attribute) {
    for (const auto& [name, value] : arguments.named) {
      if (name == "default") {
        fallback = value;
      } else if (name != "attribute") {
        return Raise(ErrorKind::kTemplateRuntime, "Unexpected keyword argument '{}'", name);
      }
    }
    const AttributePath path(r, *attribute);
    return [&r, path, fallback](const Value& item) { return path.Get(r, item, &fallback); };
  }
  if (arguments.positional.empty())
    return Raise(ErrorKind::kTemplateRuntime, "map requires a filter argument");
  const Value name = arguments.positional[0];
  if (!name.is_string()) return Raise(ErrorKind::kTemplateRuntime, "map requires a filter name");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return [&r, name, rest](const Value& item) { return CallFilter(r, name.text(), item, rest); };
}

Expected<Value> Map(Runtime& r, const Value& value, const Bound&, const Arguments& arguments) {
  struct State {
    ItemFunction function;
    std::optional<Iterator> iterator;
  };
  auto state = std::make_shared<State>();
  return MakeGenerator(
      r.budget(),
      [&r, state, value, arguments](Value* out) -> Expected<bool> {
        if (!Truth(value)) return false;
        if (!state->iterator) {
          LS_TRY(state->function, PrepareMap(r, arguments));
          LS_TRY(state->iterator, Iterator::Over(value));
        }
        Value item;
        LS_TRY(const bool more, state->iterator->Next(r, &item));
        if (!more) return false;
        LS_TRY(*out, state->function(item));
        return true;
      },
      value, arguments);
}

// select and reject, by a test of the item or of one of its attributes.
Expected<Value> SelectBy(Runtime& r, const Value& value, const Arguments& arguments, bool keep,
                         bool by_attribute) {
  struct State {
    std::optional<Iterator> iterator;
    AttributePath path;
    Value test;  // None: truth
    Arguments rest;
  };
  auto state = std::make_shared<State>();
  return MakeGenerator(
      r.budget(),
      [&r, state, value, arguments, keep, by_attribute](Value* out) -> Expected<bool> {
        if (!Truth(value)) return false;
        if (!state->iterator) {
          size_t next = 0;
          if (by_attribute) {
            if (arguments.positional.empty())
              return Raise(ErrorKind::kTemplateRuntime, "Missing parameter for attribute name");
            state->path = AttributePath(r, arguments.positional[next++]);
          }
          if (next < arguments.positional.size()) {
            state->test = arguments.positional[next++];
            if (!state->test.is_string())
              return Raise(ErrorKind::kTemplateRuntime, "a test is named by a string");
            state->rest.positional.assign(
                arguments.positional.begin() + static_cast<std::ptrdiff_t>(next),
                arguments.positional.end());
            state->rest.named = arguments.named;
          }
          LS_TRY(state->iterator, Iterator::Over(value));
        }
        for (Value item;;) {
          LS_TRY(const bool more, state->iterator->Next(r, &item));
          if (!more) return false;
          LS_TRY(const Value tested, state->path.Get(r, item));
          bool passes = false;
          if (state->test.is_none()) {
            passes = Truth(tested);
          } else {
            LS_TRY(passes, CallTest(r, state->test.text(), tested, state->rest));
          }
          if (passes != keep) continue;
          *out = std::move(item);
          return true;
        }
      },
      value, arguments);
}
Expected<Value> Select(Runtime& r, const Value& value, const Bound&, const Arguments& arguments) {
  return SelectBy(r, value, arguments, true, false);
}
Expected<Value> Reject(Runtime& r, const Value& value, const Bound&, const Arguments& arguments) {
  return SelectBy(r, value, arguments, false, false);
}
Expected<Value> SelectAttr(Runtime& r, const Value& value, const Bound&,
                           const Arguments& arguments) {
  return SelectBy(r, value, arguments, true, true);
}
Expected<Value> RejectAttr(Runtime& r, const Value& value, const Bound&,
                           const Arguments& arguments) {
  return SelectBy(r, value, arguments, false, true);
}

constexpr FilterRow kRows[] = {
    {"batch", "linecount,fill_with=", Batch, Work::kCopy},
    {"count", "", LengthFilter, Work::kScan},
    {"dictsort", "case_sensitive=,by=,reverse=", DictSort, Work::kCopy},
    {"first", "", First, Work::kCopy},
    {"groupby", "attribute,default=,case_sensitive=", GroupBy, Work::kCopy},
    {"items", "", ItemsFilter, Work::kCopy},
    {"join", "d=,attribute=", Join, Work::kCopy},
    {"last", "", Last, Work::kCopy},
    {"length", "", LengthFilter, Work::kScan},
    {"list", "", ListFilter, Work::kCopy},
    {"map", "*", Map, Work::kCopy},
    {"max", "case_sensitive=,attribute=", Max, Work::kCopy},
    {"min", "case_sensitive=,attribute=", Min, Work::kCopy},
    {"random", "", Random, Work::kScan},
    {"reject", "*", Reject, Work::kCopy},
    {"rejectattr", "*", RejectAttr, Work::kCopy},
    {"reverse", "", Reverse},
    {"select", "*", Select, Work::kCopy},
    {"selectattr", "*", SelectAttr, Work::kCopy},
    {"slice", "slices,fill_with=", SliceFilter, Work::kCopy},
    {"sort", "reverse=,case_sensitive=,attribute=", Sort, Work::kCopy},
    {"sum", "attribute=,start=", Sum, Work::kCopy},
    {"unique", "case_sensitive=,attribute=", Unique, Work::kCopy},
};

}  // namespace

std::span<const FilterRow> SequenceFilters() { return kRows; }

}  // namespace lockstep::jinja
