// GoogleTest's main for tests that run inside a job, of mpirun or by TCP: every process runs every
// test, in the same order, over one link. Process 0 reports; of the others only failures are shown.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "exec/transports/process/mpi/wire.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "tests/parity/mpi_job.hpp"

namespace pipewright::tests {
namespace {

exec::mpi::Link* link = nullptr;

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "process %d: %s:%d: %s\n", job_link().process(), result.file_name(),
                 result.line_number(), result.summary());
  }
};

/// Null outside a job.
std::unique_ptr<exec::mpi::Wire> own_wire() {
  if (exec::mpi::processes_of_launcher() > 0) return std::make_unique<exec::mpi::MpiWire>();
  const auto place = exec::tcp::job_place(exec::tcp::process_environment());
  return place ? std::make_unique<exec::tcp::TcpWire>(*place) : nullptr;
}

}  // namespace

exec::mpi::Link& job_link() { return *link; }

}  // namespace pipewright::tests

int main(int argc, char** argv) {
  using namespace pipewright;
  testing::InitGoogleTest(&argc, argv);
  auto wire = tests::own_wire();
  if (wire == nullptr) {
    std::puts("started without mpirun: SKIPPED");
    return 77;
  }
  exec::mpi::Link link(std::move(wire), {.measure_clock = true});
  tests::link = &link;
  if (link.process() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new tests::FailuresOnly);
  }
  const int failed = RUN_ALL_TESTS();
  return link.close() ? failed : 1;
}
