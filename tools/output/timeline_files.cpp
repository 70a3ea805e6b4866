#include "tools/output/timeline_files.hpp"

#include "tools/cli/interrupt.hpp"
#include "tools/output/gpu_work_text.hpp"
#include "tools/output/phases_text.hpp"
#include "tools/output/timeline_report.hpp"
#include "traces/pictures/svg.hpp"

namespace pipewright::tools {

std::vector<Flag> timeline_file_flags() {
  return {
      {.group = "Output",
       .name = "--trace",
       .argument = "FILE",
       .help = "write a Chrome trace for ui.perfetto.dev; compressed if the name ends in .gz",
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output",
       .name = "--svg",
       .argument = "FILE",
       .help = "write the timeline as a picture",
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output",
       .name = "--html",
       .argument = "FILE",
       .help =
           "write an interactive page: timeline, verdict, figures, bubbles by cause, critical path",
       .is_file = true,
       .writes = Writes::File},
  };
}

void save_trace(Session& session, const std::string& path, const Subject& subject,
                const Timeline& timeline, traces::TraceInfo::Kind kind, const std::string& clocks,
                const GpuWorkLog* work) {
  traces::TraceInfo info;
  info.title = subject.title;
  info.kind = kind;
  info.metadata = {{"schedule", subject.title},
                   {"policy", policy_text(subject.program.policy)},
                   {"costs", subject.costs_text},
                   {"source", subject.source}};
  if (!clocks.empty()) info.metadata.emplace_back("clocks", clocks);
  if (work != nullptr) {
    info.work = work->work;
    info.metadata.emplace_back("gpu_work", gpu_work_text(subject.program, timeline, *work));
  }
  if (kind == traces::TraceInfo::Kind::Measured)
    info.phases = host_phases(session.phases().spans());
  if (path == "-") {
    return session.save(path, traces::chrome_trace(subject.program, timeline, subject.costs, info));
  }
  const InterruptScope scope;
  traces::write_chrome_trace(path, subject.program, timeline, subject.costs, info);
  InterruptScope::check();
  session.wrote(path, "   (open it in ui.perfetto.dev)");
}

void save_timeline_files(const Arguments& arguments, Session& session, const Subject& subject,
                         const Timeline& timeline, traces::TraceInfo::Kind kind,
                         const std::string& clocks, traces::PageNotes notes,
                         const GpuWorkLog* work) {
  if (const auto path = arguments.text("--trace")) {
    save_trace(session, *path, subject, timeline, kind, clocks, work);
  }
  if (const auto path = arguments.text("--svg")) {
    const auto trace = traces::trace_timeline(subject.program, timeline);
    session.save(*path, traces::svg_timeline(trace, {.title = subject.title}));
    session.wrote(*path);
  }
  if (const auto path = arguments.text("--html")) {
    session.save_page(*path, timeline_page(subject, timeline, std::move(notes)));
  }
}

}  // namespace pipewright::tools
