// Parses a chat template into a Tree, with the grammar, precedences and messages of Jinja2 3.1.6
// plus the extensions that transformers adds: break, continue and {% generation %}.
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace lockstep::jinja {

Expected<Tree> Parse(std::string_view source);

// What Jinja2 finds when it compiles the tree: unknown filters and tests, break outside a loop,
// assignments to `loop`. Also notes which special names (loop, caller, kwargs, varargs) are read.
Expected<void> CheckTree(Tree& tree);

}  // namespace lockstep::jinja
