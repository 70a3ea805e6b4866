// `check --matrix`: the verdict under every policy as a table and as JSON, and the least eager
// credit with which the subject's own policy passes.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// Adds "matrix", a list of {preset or null, policy fields, verdict}, and "least_credit",
/// {messages, bytes}, each a number or null. Both null, and the list empty, where the order is not
/// whole: no policy can help it.
void add_matrix_fields(Json& fields, const Subject& subject);

/// A row for each issue and channel, a column for each protocol and post; then the presets, each
/// beside its fields; then the credit in a sentence. "" where the order is not whole.
std::string matrix_text(const Subject& subject, const Terminal& terminal);

}  // namespace pipewright::tools
