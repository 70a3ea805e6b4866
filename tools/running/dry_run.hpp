// run --dry-run: what GPUs would be given, shown and judged, without one.
#pragma once

#include "exec/base/numerics.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// The communicators, and the calls of NCCL by rank with the streams' waits, and what goes by way
/// of the hosts; the verdict is that of the calls, read back. Throws InputError where NCCL cannot
/// give the policy. Returns the exit status.
int show_nccl_calls(const Subject& subject, exec::Numerics numerics, Session& session);

/// The order in which one host thread would give all ranks to one GPU, with the waits, and with
/// --slow-link what each transfer takes at least; or why there is none. Returns the exit status.
int show_issue_order(const Arguments& arguments, const Subject& subject, Session& session);

}  // namespace pipewright::tools
