// --trace, --svg and --html: a timeline into files.
#pragma once

#include <string>

#include "core/timeline/timeline.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"
#include "traces/chrome/trace.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

std::vector<Flag> timeline_file_flags();
/// Writes what --trace, --svg and --html ask for, and notes it on stderr. `clocks`: of a measured
/// run over several processes, how far their clocks may be off. `notes`: for the page. `work`: for
/// the trace, what GPUs did.
void save_timeline_files(const Arguments& arguments, Session& session, const Subject& subject,
                         const Timeline& timeline, traces::TraceInfo::Kind kind,
                         const std::string& clocks = "", traces::PageNotes notes = {},
                         const GpuWorkLog* work = nullptr);
/// One trace. Ctrl-C waits until the file is whole.
void save_trace(Session& session, const std::string& path, const Subject& subject,
                const Timeline& timeline, traces::TraceInfo::Kind kind,
                const std::string& clocks = "", const GpuWorkLog* work = nullptr);

}  // namespace pipewright::tools
