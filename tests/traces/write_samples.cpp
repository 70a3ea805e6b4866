// Writes traces of several schedules into a folder, for the check with a real importer: simulated
// ones, one that got stuck, and measured ones of real threads. Prints a path a line.
//
//   write_samples FOLDER
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>

#include "exec/devices/paced/device.hpp"
#include "tests/support/traced.hpp"
#include "traces/chrome/trace.hpp"

namespace pipewright {
namespace {

class Samples {
 public:
  explicit Samples(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void simulated(const std::string& schedule, int chunks, const std::string& preset,
                 const std::string& costs, const std::string& name) {
    test::Traced t = test::traced_schedule(schedule, 4, 8, chunks, preset, costs);
    write(name, t, traces::TraceInfo::Kind::Simulated);
  }

  void measured(const std::string& schedule, const std::string& preset, const std::string& name) {
    test::Traced t =
        test::traced_schedule(schedule, 4, 8, 1, preset, "F=300us,I=300us,W=200us,comm=100us");
    t.timeline = exec::paced::run_paced(t.program, t.costs, exec::local::ClockKind::Wall).timeline;
    write(name, t, traces::TraceInfo::Kind::Measured);
  }

  void stuck(const std::string& name) {
    const test::Traced t = test::traced_csv(
        "0F0,0SEND_F0,0SEND_F1,2RECV_F0,2F0\n"
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1\n",
        {.issue = Issue::Inline}, "F=100us,B=1", true);
    write(name, t, traces::TraceInfo::Kind::Simulated);
  }

 private:
  void write(const std::string& name, const test::Traced& t, traces::TraceInfo::Kind kind) {
    const std::filesystem::path path = folder_ / name;
    traces::write_chrome_trace(path, t.program, t.timeline, t.costs,
                               {.title = name, .kind = kind, .metadata = {}});
    std::puts(path.c_str());
  }

  const std::filesystem::path folder_;
};

void write_all(const std::filesystem::path& folder) {
  Samples samples(folder);
  for (const char* preset : {"ideal", "torch", "nccl-one-stream", "megatron-batched"}) {
    const std::string end = std::string("-") + preset + ".json";
    const std::string real = "F=3ms,I=2ms,W=1500us,comm=200us", units = "F=1,I=1,W=1";
    samples.simulated("gpipe", 1, preset, real, "gpipe" + end);
    samples.simulated("1f1b", 1, preset, real, "1f1b" + end);
    samples.simulated("interleaved", 2, preset, real, "interleaved" + end);
    samples.simulated("zb-h1", 1, preset, real, "zb-h1" + end);
    samples.simulated("1f1b", 1, preset, units, "units" + end);
  }
  samples.simulated("1f1b", 1, "torch", "F=3ms,B=5ms,comm=20ms", "slow-links.json.gz");
  samples.measured("1f1b", "torch", "measured-1f1b.json.gz");
  samples.measured("zb-h1", "megatron-batched", "measured-zb-h1.json.gz");
  samples.stuck("stuck.json");
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_samples FOLDER\n", stderr);
    return 2;
  }
  try {
    pipewright::write_all(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
