// Every collective between processes, for real: in jobs of mpirun and of processes that meet by
// their environment, through windows and over the job's wire.
#include <gtest/gtest.h>

#include "tests/parity/mpi_job.hpp"
#include "tests/support/collective_cases.hpp"
#include "tests/support/link_world.hpp"

namespace pipewright::tests {
namespace collectives_job_test {

using test::CollectiveCase;

class CollectivesOfProcesses : public testing::TestWithParam<CollectiveCase> {};

TEST_P(CollectivesOfProcesses, AsPromisedThroughWindows) {
  test::WindowWorld world(job_link());
  GetParam().run(world);
}

TEST_P(CollectivesOfProcesses, AsPromisedOverTheWire) {
  test::WireWorld world(job_link());
  GetParam().run(world);
}

INSTANTIATE_TEST_SUITE_P(Every, CollectivesOfProcesses,
                         testing::ValuesIn(test::collective_cases().begin(),
                                           test::collective_cases().end()),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace collectives_job_test
}  // namespace pipewright::tests
