// The same collectives by MPI itself, for bench_collectives: collectives_mpi OPERATION MOST_BYTES,
// started by mpirun.
#include <mpi.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/collective_times.hpp"

int main(int argc, char** argv) {
  using namespace pipewright;
  if (argc != 3) return 2;
  const std::string operation = argv[1];
  const std::size_t most = std::strtoull(argv[2], nullptr, 10);
  MPI_Init(&argc, &argv);
  int own = 0, members = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &members);
  std::vector<float> values(most / sizeof(float), 0.0F), others(values.size(), 0.0F);
  for (std::size_t bytes = bench::kLeastBytes; bytes <= most; bytes *= 4) {
    const int all = static_cast<int>(bytes / sizeof(float)), part = all / members;
    const auto call = [&] {
      if (operation == "all_reduce")
        MPI_Allreduce(MPI_IN_PLACE, values.data(), all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      else if (operation == "reduce_scatter")
        MPI_Reduce_scatter_block(values.data(), others.data(), part, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
      else if (operation == "all_gather")
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, values.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
      else if (operation == "all_to_all")
        MPI_Alltoall(values.data(), part, MPI_FLOAT, others.data(), part, MPI_FLOAT,
                     MPI_COMM_WORLD);
      else
        MPI_Bcast(values.data(), all, MPI_FLOAT, 0, MPI_COMM_WORLD);
    };
    const double seconds = bench::seconds_of_call(bytes, call);
    if (own == 0) bench::print_time(bytes, seconds);
  }
  MPI_Finalize();
  return 0;
}
