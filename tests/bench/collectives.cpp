// Collectives of groups on this machine, beside Open MPI and gloo in the same run: 1 KB to MOST
// bytes, 2, 4 and 8 members. bench_collectives [OPERATION [MOST_BYTES [ROUNDS]]]; every round runs
// each of them once, one after another, and medians of the rounds are printed. gloo runs where
// PIPEWRIGHT_TORCH_PYTHON names a Python that has torch.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/collectives/process/window_group.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "exec/collectives/threads.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "tests/bench/collective_times.hpp"

namespace pipewright::bench {
namespace {

using exec::collectives::Group;
using Times = std::map<std::size_t, double>;  // seconds by bytes

/// The member of a group that measures; only member 0 hears of times.
Times measure(Group& group, const std::string& operation, std::size_t most) {
  exec::AlignedFloats values(most / sizeof(float)), others(values.size());
  const auto members = static_cast<std::size_t>(group.members());
  Times times;
  for (std::size_t bytes = kLeastBytes; bytes <= most; bytes *= 4) {
    const std::span<float> array(values.data(), bytes / sizeof(float));
    const std::vector<std::size_t> parts(members, bytes / members / sizeof(float) * sizeof(float));
    const std::size_t whole = parts.front() * members;
    const auto in = std::as_writable_bytes(std::span(others)).first(whole);
    times[bytes] = seconds_of_call(bytes, [&] {
      if (operation == "all_reduce")
        static_cast<void>(group.all_reduce({array, exec::Numerics::Fast}));
      else if (operation == "reduce_scatter")
        static_cast<void>(group.reduce_scatter({array, exec::Numerics::Fast}));
      else if (operation == "all_gather")
        group.all_gather({std::as_writable_bytes(array).first(whole), parts});
      else if (operation == "all_to_all")
        group.all_to_all({std::as_bytes(array).first(whole), parts}, {in, parts});
      else
        group.broadcast(0, std::as_writable_bytes(array));
    });
  }
  return times;
}

Times times_of_threads(int members, const std::string& operation, std::size_t most) {
  auto groups = exec::collectives::groups_of_threads(members);
  Times times;
  std::vector<std::jthread> threads;
  for (int m = 0; m < members; ++m) {
    threads.emplace_back([&, m] {
      Times own = measure(*groups[static_cast<std::size_t>(m)], operation, most);
      if (m == 0) times = std::move(own);
    });
  }
  threads.clear();
  return times;
}

/// What every member of an all_reduce has to move, by memcpy, all members at once: of everybody's
/// arrays its own share, of everybody's sums all others.
Times times_of_copies(int members, std::size_t most) {
  const auto n = static_cast<std::size_t>(members);
  std::vector<Times> own(n);
  std::vector<std::jthread> threads;
  for (std::size_t m = 0; m < n; ++m) {
    threads.emplace_back([&, m] {
      exec::AlignedFloats from(most / sizeof(float)), to(from.size());
      for (std::size_t bytes = kLeastBytes; bytes <= most; bytes *= 4) {
        const std::size_t part = bytes / n * (n - 1);
        own[m][bytes] = seconds_of_call(bytes, [&] {
          std::memcpy(to.data(), from.data(), part);
          std::memcpy(from.data(), to.data(), part);
        });
      }
    });
  }
  threads.clear();
  Times times;
  for (auto& [bytes, seconds] : own.front()) {
    for (const Times& one : own) times[bytes] = std::max(times[bytes], one.at(bytes));
  }
  return times;
}

/// A program whose first process prints "bytes seconds" a line; nothing where it fails.
Times times_printed_by(const std::string& command) {
  Times times;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return times;
  std::size_t bytes = 0;
  double seconds = 0;
  while (std::fscanf(pipe, "%zu %lf", &bytes, &seconds) == 2) times[bytes] = seconds;
  if (pclose(pipe) != 0) std::printf("failed: %s\n", command.c_str());
  return times;
}

int run_member(const std::string& channel, const std::string& operation, std::size_t most) {
  const auto place = exec::tcp::job_place(exec::tcp::process_environment());
  if (!place) return 2;
  exec::mpi::Link link(std::make_unique<exec::tcp::TcpWire>(*place));
  std::vector<int> all;
  for (int p = 0; p < link.processes(); ++p) all.push_back(p);
  {
    const auto group =
        channel == "windows"
            ? exec::collectives::window_group(link, all)
            : exec::collectives::wire_group(std::make_shared<exec::collectives::Mail>(link), all);
    for (const auto& [bytes, seconds] : measure(*group, operation, most)) {
      if (link.process() == 0) print_time(bytes, seconds);
    }
  }
  return link.close() ? 0 : 1;
}

struct Contestant {
  std::string name;
  std::function<Times()> run;
  std::map<std::size_t, std::vector<double>> seconds = {};  // by bytes, of the rounds

  double median(std::size_t bytes) {
    std::vector<double>& all = seconds[bytes];
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }
};

std::vector<Contestant> contestants(const std::string& own, int members,
                                    const std::string& operation, std::size_t most) {
  const std::string n = std::to_string(members);
  const std::string what = " " + operation + " " + std::to_string(most);
  const std::string start = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/support/start_job " + n;
  const auto job = [=](const std::string& command) {
    return [=] { return times_printed_by(command); };
  };
  std::vector<Contestant> all = {
      {"copies", [=] { return times_of_copies(members, most); }},
      {"threads", [=] { return times_of_threads(members, operation, most); }},
      {"windows", job(start + " " + own + " member windows" + what)},
      {"sockets", job(start + " " + own + " member wire" + what)},
  };
  if (*PIPEWRIGHT_MPIRUN != '\0')
    all.push_back({"Open MPI", job(std::string(PIPEWRIGHT_MPIRUN) + " --oversubscribe -np " + n +
                                   " " + own + "_mpi" + what)});
  if (const char* python = std::getenv("PIPEWRIGHT_TORCH_PYTHON"))
    all.push_back({"gloo", job(start + " " + python + " " + PIPEWRIGHT_SOURCE_DIR +
                               "/tests/bench/collectives_gloo.py" + what)});
  return all;
}

void print_table(std::vector<Contestant>& all, std::size_t most) {
  std::printf("%11s", "bytes");
  for (const Contestant& one : all) std::printf(" %12s", one.name.c_str());
  std::printf("   threads/copies  windows/faster of the others\n");
  for (std::size_t bytes = kLeastBytes; bytes <= most; bytes *= 4) {
    std::printf("%11zu", bytes);
    for (Contestant& one : all) std::printf(" %9.1f us", one.median(bytes) * 1e6);
    double fastest = 0;
    for (std::size_t i = 4; i < all.size(); ++i) {
      const double other = all[i].median(bytes);
      if (other > 0 && (fastest == 0 || other < fastest)) fastest = other;
    }
    std::printf("   %14.2f", all[1].median(bytes) / all[0].median(bytes));
    if (fastest > 0) std::printf("  %28.2f", all[2].median(bytes) / fastest);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  using namespace pipewright::bench;
  const auto number = [&](int at, std::size_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
  };
  if (argc == 5 && std::string(argv[1]) == "member")
    return run_member(argv[2], argv[3], number(4, 0));
  const std::string operation = argc > 1 ? argv[1] : "all_reduce";
  const std::size_t most = number(2, std::size_t{256} << 20U), rounds = number(3, 3);
  if (std::getenv("PIPEWRIGHT_TORCH_PYTHON") == nullptr)
    std::puts("PIPEWRIGHT_TORCH_PYTHON names no Python that has torch: gloo is SKIPPED");
  if (*PIPEWRIGHT_MPIRUN == '\0') std::puts("no mpirun here: Open MPI is SKIPPED");
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  for (const int members : {2, 4, 8}) {
    std::printf("%s, %d members, median of %zu rounds\n", operation.c_str(), members, rounds);
    auto all = contestants(argv[0], members, operation, most);
    for (std::size_t round = 0; round < rounds; ++round) {
      for (Contestant& one : all) {
        for (const auto& [bytes, seconds] : one.run()) one.seconds[bytes].push_back(seconds);
      }
    }
    print_table(all, most);
  }
  return 0;
}
