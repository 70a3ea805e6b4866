// How the processes of a job find one another: real sockets and files, threads in place of
// processes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/error.hpp"
#include "core/lower.hpp"
#include "exec/nccl/unique_ids.hpp"
#include "exec/tcp/rendezvous.hpp"

namespace pipewright::exec::tcp {
namespace {

using testing::HasSubstr;

Environment of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

std::string refusal_of(std::map<std::string, std::string> values) {
  try {
    static_cast<void>(job_place(of(std::move(values))));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(JobPlace, IsReadFromPipewrightsNamesAndFromTorchruns) {
  EXPECT_FALSE(job_place(of({})).has_value());
  const auto own = job_place(of({{"PIPEWRIGHT_RANK", "3"},
                                 {"PIPEWRIGHT_WORLD_SIZE", "8"},
                                 {"PIPEWRIGHT_LOCAL_RANK", "1"},
                                 {"PIPEWRIGHT_RENDEZVOUS", "tcp://node-0:2950"},
                                 {"RANK", "9"}}));
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->process, 3);
  EXPECT_EQ(own->processes, 8);
  EXPECT_EQ(own->local_process, 1);
  EXPECT_EQ(own->host, "node-0");
  EXPECT_EQ(own->port, 2950);
  const auto torchrun = job_place(of({{"RANK", "1"},
                                      {"WORLD_SIZE", "2"},
                                      {"LOCAL_RANK", "1"},
                                      {"MASTER_ADDR", "10.0.0.7"},
                                      {"MASTER_PORT", "29500"}}));
  ASSERT_TRUE(torchrun.has_value());
  EXPECT_EQ(torchrun->host, "10.0.0.7");
  EXPECT_EQ(torchrun->port, 29501);  // torchrun's store has 29500
}

TEST(JobPlace, OfHalfAJobOrNonsenseIsRefusedByName) {
  EXPECT_THAT(refusal_of({{"RANK", "1"}}), HasSubstr("WORLD_SIZE) is not"));
  EXPECT_THAT(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK: expected"));
  EXPECT_THAT(refusal_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), HasSubstr("\"one\""));
  EXPECT_THAT(refusal_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("where they meet"));
  EXPECT_THAT(refusal_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PIPEWRIGHT_RENDEZVOUS", "here"}}),
              HasSubstr("tcp://host:port or file:///folder"));
  EXPECT_EQ(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
}

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// A port that nobody had a moment ago.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(socket);
  return ntohs(address.sin_port);
}

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "rendezvous-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void expect_all_learn_all(const JobPlace& job) {
  std::vector<std::vector<Bytes>> learnt(static_cast<std::size_t>(job.processes));
  {
    std::vector<std::jthread> processes;
    for (int p = job.processes - 1; p >= 0; --p) {  // process 0 comes last
      processes.emplace_back([&learnt, job, p] {
        JobPlace place = job;
        place.process = p;
        learnt[static_cast<std::size_t>(p)] = come_together(
            place,
            bytes_of(std::string(static_cast<std::size_t>(p) * 1000, 'a') + std::to_string(p)));
      });
    }
  }
  for (const auto& all : learnt) {
    ASSERT_EQ(all.size(), learnt.size());
    for (std::size_t p = 0; p < all.size(); ++p)
      EXPECT_EQ(all[p], bytes_of(std::string(p * 1000, 'a') + std::to_string(p)));
  }
}

TEST(Rendezvous, ByTcpEverybodyLearnsWhatEverybodyBrings) {
  expect_all_learn_all({.processes = 5, .host = "127.0.0.1", .port = free_port(), .folder = {}});
}

TEST(Rendezvous, ByFilesEverybodyLearnsWhatEverybodyBrings) {
  const Folder folder;
  expect_all_learn_all({.processes = 4, .host = {}, .folder = folder.path()});
}

TEST(Rendezvous, OfOneProcessNeedsNobody) {
  EXPECT_EQ(come_together({}, bytes_of("alone")), std::vector<Bytes>{bytes_of("alone")});
}

std::string failure_of(const JobPlace& place, const RendezvousOptions& options) {
  try {
    static_cast<void>(come_together(place, bytes_of("x"), options));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Rendezvous, SaysWhoIsMissing) {
  const RendezvousOptions short_time{.timeout_ns = 50'000'000};
  EXPECT_THAT(failure_of({.processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}},
                         short_time),
              HasSubstr("process 1 has not come"));
  EXPECT_THAT(
      failure_of(
          {.process = 1, .processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}},
          short_time),
      HasSubstr("process 0 does not answer"));
  const Folder folder;
  EXPECT_THAT(failure_of({.processes = 2, .host = {}, .folder = folder.path()}, short_time),
              HasSubstr("process 1 has left no file"));
  EXPECT_THAT(failure_of({.processes = 2, .host = {}, .folder = folder.path()}, short_time),
              HasSubstr("from another run"));
}

TEST(Rendezvous, EndsWhenItIsInterrupted) {
  const std::atomic<bool> interrupted{true};
  EXPECT_THAT(failure_of({.processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}},
                         {.interrupted = &interrupted}),
              HasSubstr("interrupted"));
}

TEST(UniqueIds, AreMadeOnceAndAreTheSameForAllMembers) {
  const Program program =
      lower(read_order_csv("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n", "order.csv"), {});
  const nccl::CommunicatorPlan plan = nccl::communicators_of(program);
  const JobPlace job{.processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}};
  std::vector<std::vector<nccl::UniqueId>> ids(2);
  {
    std::vector<std::jthread> processes;
    for (int p = 0; p < 2; ++p) {
      processes.emplace_back([&, p] {
        JobPlace place = job;
        place.process = p;
        char next = static_cast<char>('a' + 10 * p);
        ids[static_cast<std::size_t>(p)] = nccl::unique_ids(
            plan, p, [](RankId rank) { return rank.value / 2; },
            [&next] {
              nccl::UniqueId id{};
              id[0] = next++;
              return id;
            },
            [&place](exec::Bytes own) { return come_together(place, own); });
      });
    }
  }
  EXPECT_EQ(ids[0], ids[1]);
  std::string makers;
  for (const nccl::UniqueId& id : ids[0]) makers += id[0];
  EXPECT_EQ(makers, "abcklm");  // 0-1, 1-0, 1-2 of process 0; 2-1, 2-3, 3-2 of process 1
}

}  // namespace
}  // namespace pipewright::exec::tcp
