// How the processes of a job find one another: real sockets and files, threads in place of
// processes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "exec/transports/nccl/unique_ids.hpp"
#include "exec/transports/process/tcp/handshake.hpp"
#include "exec/transports/process/tcp/private_file.hpp"
#include "exec/transports/process/tcp/rendezvous.hpp"
#include "exec/transports/process/tcp/token.hpp"

namespace pipewright::exec::tcp {
namespace rendezvous_test {

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

std::string written(const Folder& folder, const std::string& text, int mode) {
  const std::string path = folder.path() + "/token";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(chmod(path.c_str(), static_cast<mode_t>(mode)), 0);
  return path;
}

std::map<std::string, std::string> job_with(const std::string& name, const std::string& value) {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"PIPEWRIGHT_RENDEZVOUS", "tcp://node-0:2950"},
          {name, value}};
}

TEST(JobPlace, HasTheTokenOfItsUserAlone) {
  const Folder folder;
  EXPECT_EQ(job_place(of(job_with("PIPEWRIGHT_TOKEN", "secret")))->token, "secret");
  EXPECT_EQ(job_place(of(job_with("PIPEWRIGHT_LISTEN", "0.0.0.0")))->listen, "0.0.0.0");
  const auto with_file = [](const std::string& path) {
    return job_with("PIPEWRIGHT_TOKEN_FILE", path);
  };
  EXPECT_EQ(job_place(of(with_file(written(folder, "of a file\n", 0600))))->token, "of a file");
  EXPECT_EQ(job_place(of(with_file(written(folder, "of a file\n", 0400))))->token, "of a file");
  for (const int mode : {0644, 0640, 0604, 0620, 0602}) {
    EXPECT_THAT(refusal_of(with_file(written(folder, "of a file", mode))), HasSubstr("chmod 600"))
        << mode;
  }
  EXPECT_THAT(refusal_of(with_file(written(folder, " \n", 0600))), HasSubstr("/dev/urandom"));
  EXPECT_THAT(refusal_of(with_file(folder.path() + "/none")), HasSubstr("is not there"));
  EXPECT_THAT(refusal_of(with_file(folder.path())), HasSubstr("found a folder"));
  EXPECT_THAT(refusal_of(with_file("/dev/zero")), HasSubstr("a pipe or a device"));
  EXPECT_THAT(refusal_of(job_with("PIPEWRIGHT_TOKEN", "")),
              HasSubstr("PIPEWRIGHT_TOKEN: expected"));
  auto both = with_file("token");
  both["PIPEWRIGHT_TOKEN"] = "secret";
  EXPECT_THAT(refusal_of(both), HasSubstr("both set"));
}

TEST(JobPlace, OfIpv6MayStandInBrackets) {
  const auto place = job_place(
      of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PIPEWRIGHT_RENDEZVOUS", "tcp://[::1]:2950"}}));
  EXPECT_EQ(place->host, "::1");
  EXPECT_EQ(place->port, 2950);
}

PackedBytes bytes_of(const std::string& text) {
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

void expect_all_learn_all(const JobPlace& job) {
  std::vector<std::vector<PackedBytes>> learnt(static_cast<std::size_t>(job.processes));
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
  EXPECT_EQ(come_together({}, bytes_of("alone")), std::vector<PackedBytes>{bytes_of("alone")});
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

TEST(Rendezvous, ByATokenEverybodyLearnsWhatEverybodyBrings) {
  expect_all_learn_all({.processes = 3,
                        .host = "127.0.0.1",
                        .port = free_port(),
                        .folder = {},
                        .token = "secret",
                        .listen = "0.0.0.0"});
}

TEST(Rendezvous, WhereStrangersReachItAsksForATokenAndSaysHowToMakeOne) {
  for (const int process : {0, 1}) {
    for (const JobPlace& place : {JobPlace{.host = "192.0.2.1", .port = 2950, .folder = {}},
                                  JobPlace{.host = "0.0.0.0", .port = 2950, .folder = {}}}) {
      JobPlace own = place;
      own.process = process;
      own.processes = 2;
      EXPECT_THAT(failure_of(own, {}), HasSubstr("/dev/urandom")) << process << place.host;
    }
  }
  EXPECT_THAT(failure_of({.processes = 2,
                          .host = "127.0.0.1",
                          .port = free_port(),
                          .folder = {},
                          .listen = "0.0.0.0"},
                         {}),
              HasSubstr("PIPEWRIGHT_LISTEN: strangers"));
}

TEST(Rendezvous, TellsThoseWhoAreHereWhoHasGone) {
  const JobPlace job{.processes = 4, .host = "127.0.0.1", .port = free_port(), .folder = {}};
  const auto of_process = [&job](int process) {
    JobPlace place = job;
    place.process = process;
    return place;
  };
  std::string host, guest;
  std::atomic<bool> leaves{false};
  {
    std::jthread first([&] { host = failure_of(of_process(0), {}); });
    std::jthread second([&] { guest = failure_of(of_process(1), {}); });
    std::jthread third(
        [&] { static_cast<void>(failure_of(of_process(2), {.interrupted = &leaves})); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    leaves.store(true);
  }
  EXPECT_THAT(host, HasSubstr("process 2 has come and closed its connection"));
  EXPECT_EQ(guest, host);
}

TEST(Rendezvous, LeavesNoTokenBehindAndNoneThatOthersRead) {
  const JobPlace job{.processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}};
  const std::filesystem::path path = own_token_path(job.host, job.port);
  EXPECT_EQ(std::filesystem::status(path.parent_path()).permissions(),
            std::filesystem::perms::owner_all);
  std::filesystem::perms seen{};
  {
    std::jthread host([&] { static_cast<void>(failure_of(job, {.timeout_ns = 400'000'000})); });
    for (int i = 0; i < 300 && !std::filesystem::exists(path); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    seen = std::filesystem::status(path).permissions();
  }
  EXPECT_EQ(seen, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Rendezvous, ATokenThatAnEarlierJobLeftIsAskedForAgain) {
  JobPlace job{.processes = 2, .host = "127.0.0.1", .port = free_port(), .folder = {}};
  const std::filesystem::path path = own_token_path(job.host, job.port);
  write_private_file(path, random_block());
  std::vector<PackedBytes> all;
  {
    std::jthread guest([&, place = job]() mutable {
      place.process = 1;
      all = come_together(place, bytes_of("guest"));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    come_together(job, bytes_of("host"));
  }
  EXPECT_EQ(all.size(), 2U);
}

TEST(Handshake, AProofIsGoodForOneDoorOneWayAndOneMoment) {
  const Lock lock{random_block(), 0};
  const Block challenge = random_block();
  const Claim claim{.process = 1, .processes = 2, .challenge = random_block()};
  const Block proof = knockers_proof(lock, claim, challenge);
  EXPECT_EQ(proof, knockers_proof(lock, claim, challenge));
  Claim other = claim;
  other.process = 0;
  EXPECT_NE(proof, knockers_proof(lock, other, challenge));
  EXPECT_NE(proof, knockers_proof({lock.key, 1}, claim, challenge));
  EXPECT_NE(proof, knockers_proof({random_block(), 0}, claim, challenge));
  EXPECT_NE(proof, knockers_proof(lock, claim, random_block()));
  EXPECT_NE(proof, doors_proof(lock, claim, challenge));
  EXPECT_NE(proof, session_key(lock, claim, challenge));
}

/// RFC 4231, test case 2; RFC 8018's PBKDF2 is libcrypto's own concern.
TEST(Handshake, ProofsAreHmacSha256) {
  Block key{};  // HMAC fills a short key up with zeros
  const std::string jefe = "Jefe";
  std::transform(jefe.begin(), jefe.end(), key.begin(),
                 [](char letter) { return static_cast<std::byte>(letter); });
  EXPECT_EQ(hex_of(proof_of(key, "what do ya want for nothing?", {})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// --- A folder that others can write to ---

namespace fs = std::filesystem;

TEST(RendezvousFolder, AndItsFilesAreTheUsersAlone) {
  const Folder above;
  const std::string folder = above.path() + "/job";
  failure_of({.processes = 2, .host = {}, .folder = folder}, {.timeout_ns = 1'000'000});
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(folder + "/process-0").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(RendezvousFolder, NoLinkOfSomebodyElseIsFollowed) {
  const RendezvousOptions short_time{.timeout_ns = 50'000'000};
  for (const char* name : {"process-0.part", "process-0", "process-1"}) {
    const Folder folder, target;
    const std::string aim = target.path() + "/aim";
    for (const bool is_there : {false, true}) {
      SCOPED_TRACE(std::string(name) + (is_there ? " to a file" : " to nothing"));
      if (is_there) std::ofstream(aim) << "mine";
      fs::remove(folder.path() + "/process-0");
      fs::remove(folder.path() + "/" + name);
      fs::create_symlink(aim, folder.path() + "/" + name);
      EXPECT_THAT(failure_of({.processes = 2, .host = {}, .folder = folder.path()}, short_time),
                  HasSubstr(std::string(name) + ": "));
      EXPECT_EQ(fs::exists(aim), is_there);
      EXPECT_TRUE(!is_there || fs::file_size(aim) == 4U);
    }
  }
}

TEST(RendezvousFolder, WhatIsNoFileOfAProcessIsRefusedByName) {
  const RendezvousOptions short_time{.timeout_ns = 50'000'000};
  const Folder folder;
  const JobPlace job{.processes = 3, .host = {}, .folder = folder.path()};
  fs::create_directory(folder.path() + "/process-2");
  std::ofstream(folder.path() + "/process-1") << "x";
  fs::permissions(folder.path() + "/process-1", fs::perms(0600));
  EXPECT_THAT(failure_of(job, short_time),
              HasSubstr("process-2: expected a regular file, found a folder; name a fresh folder"));
  fs::remove(folder.path() + "/process-0");
  fs::permissions(folder.path() + "/process-1", fs::perms(0644));
  EXPECT_THAT(failure_of(job, short_time), HasSubstr("process-1: is not of this job's user alone"));
  fs::remove(folder.path() + "/process-0");
  fs::remove(folder.path() + "/process-1");
  ASSERT_EQ(mkfifo((folder.path() + "/process-1").c_str(), 0600), 0);
  EXPECT_THAT(failure_of(job, short_time), HasSubstr("process-1: expected a regular file"));
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_THAT(
      failure_of({.processes = 2, .host = {}, .folder = folder.path() + "/file"}, short_time),
      HasSubstr("is no folder"));
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
  const nccl::CommunicatorPlan plan =
      nccl::communicators_of(program, CostTable::uniform(program.stages, {}));
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
            [&place](exec::PackedBytes own) { return come_together(place, own); });
      });
    }
  }
  EXPECT_EQ(ids[0], ids[1]);
  std::string makers;
  for (const nccl::UniqueId& id : ids[0]) makers += id[0];
  EXPECT_EQ(makers, "abcklm");  // 0-1, 1-0, 1-2 of process 0; 2-1, 2-3, 3-2 of process 1
}

}  // namespace rendezvous_test
}  // namespace pipewright::exec::tcp
