// Strangers at the doors of a job, of process 0 where all meet and of each process for the
// connections between them, while it starts and while it trains: it ends as without them, bit for
// bit. PIPEWRIGHT_STRANGERS=200 sends so many of each kind to each door.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "exec/transports/process/tcp/handshake.hpp"
#include "exec/transports/process/tcp/socket.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace strangers_test {

namespace fs = std::filesystem;
using exec::tcp::Claim;
using exec::tcp::Greeting;
using exec::tcp::random_block;
using exec::tcp::Socket;
using exec::tcp::Welcome;

constexpr int kProcesses = 3, kSteps = 60;
constexpr const char* kToken = "a token that only the job knows";

int strangers() {
  const char* wanted = std::getenv("PIPEWRIGHT_STRANGERS");
  return wanted == nullptr ? 12 : std::stoi(wanted);
}

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Port 0 takes a free one.
Socket listen_on_loopback(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // not the job's
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = loopback(port);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(socket.get(), SOMAXCONN), 0);
  return socket;
}

int free_port() { return exec::tcp::port_of(listen_on_loopback(0)); }

// --- Strangers ---

enum class Stranger {
  Silent,
  HalfHello,
  PromisesAGiB,  // as it was once promised in front of any proof
  Nonsense,
  Forged,
  LettersOneByOne,
  OpensAndLeaves,
};
constexpr std::array kKinds{Stranger::Silent,        Stranger::HalfHello, Stranger::PromisesAGiB,
                            Stranger::Nonsense,      Stranger::Forged,    Stranger::LettersOneByOne,
                            Stranger::OpensAndLeaves};

template <class T>
void say(const Socket& socket, const T& what) {
  send(socket.get(), &what, sizeof what, MSG_NOSIGNAL);
}

/// What he says; he stays as long as the socket.
Socket knock_as(Stranger kind, int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Socket();  // the doors are closed
  switch (kind) {
    case Stranger::Silent:
      break;
    case Stranger::HalfHello:
      say(socket, exec::tcp::kMagic);
      break;
    case Stranger::PromisesAGiB:
      say(socket, std::array<std::uint64_t, 3>{0x7069'7065'7772'0001, std::uint64_t{3} << 32U | 1,
                                               std::uint64_t{1} << 30U});
      break;
    case Stranger::Nonsense:
      say(socket, std::array{random_block(), random_block(), random_block(), random_block()});
      break;
    case Stranger::Forged:
      say(socket, Claim{.process = 1,
                        .processes = kProcesses,
                        .challenge = random_block(),
                        .proof = random_block()});
      say(socket, std::uint64_t{1} << 30U);
      break;
    case Stranger::LettersOneByOne:
      for (int i = 0; i < 8; ++i) say(socket, static_cast<char>(exec::tcp::kMagic >> (8 * i)));
      break;
    case Stranger::OpensAndLeaves:
      return Socket();
  }
  return socket;
}

/// So many of each kind at each door.
std::vector<Socket> crowd(const std::vector<int>& ports, int many) {
  std::vector<Socket> standing;
  for (int i = 0; i < many; ++i) {
    for (const Stranger kind : kKinds) {
      for (const int port : ports) standing.push_back(knock_as(kind, port));
    }
  }
  return standing;
}

void allow_many_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// --- The job ---

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Three processes that train a small model and save it.
class Job {
 public:
  Job(const Folder& folder, std::string saved, std::string environment)
      : folder_(folder), saved_(std::move(saved)), environment_(std::move(environment)) {}
  ~Job() { wait(); }

  void start(int process, int steps = kSteps) {
    const std::string r = std::to_string(process);
    fs::remove(folder_.path() / ("pid." + r));
    const std::string line = environment_ + " PIPEWRIGHT_WORLD_SIZE=" + std::to_string(kProcesses) +
                             " PIPEWRIGHT_RANK=" + r + " sh -c 'echo $$ >new." + r + "; mv new." +
                             r + " pid." + r +
                             "; exec \"$PW\" run plan.json --transport tcp --numerics exact --json "
                             "--steps " +
                             std::to_string(steps) + " --save-checkpoint " + saved_ + "'";
    threads_[static_cast<std::size_t>(process)] = std::jthread([this, line, process] {
      results_[static_cast<std::size_t>(process)] = shell(line, folder_);
    });
  }
  int pid(int process) const {
    const fs::path path = folder_.path() / ("pid." + std::to_string(process));
    while (!fs::exists(path)) pause_ms(2);
    return std::stoi(contents(path));
  }
  void wait() {
    for (std::jthread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void expect_done() {
    wait();
    for (const CommandResult& result : results_) EXPECT_EQ(result.status, 0) << result.err;
  }
  const CommandResult& result(int process) const {
    return results_[static_cast<std::size_t>(process)];
  }
  /// The losses, and every file of the checkpoint by name.
  std::string bits() const {
    std::string all;
    const auto document = nlohmann::json::parse(results_.front().out);
    for (const auto& step : document["steps"]) all += step["loss"].dump() + "\n";
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / saved_)) {
      if (entry.is_regular_file() && entry.path().filename() != "checkpoint.json")
        files.push_back(entry.path());
    }
    EXPECT_FALSE(files.empty());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) all += file.filename().string() + contents(file);
    return all;
  }

 private:
  const Folder& folder_;
  const std::string saved_, environment_;
  std::array<CommandResult, kProcesses> results_;
  std::array<std::jthread, kProcesses> threads_;
};

struct Listening {
  std::string address;  // hexadecimal, as /proc has it
  int port = 0;
};

/// Where a process listens.
std::vector<Listening> doors_of(int pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::string own;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(process + "/fd", gone))
    own += fs::read_symlink(entry.path(), gone).string() + " ";
  std::vector<Listening> doors;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(process + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::array<std::string, 10> word;
      for (std::string& one : word) words >> one;
      if (word[3] != "0A" || own.find("socket:[" + word[9] + "]") == std::string::npos) continue;
      const std::size_t colon = word[1].find(':');
      doors.push_back(
          {word[1].substr(0, colon), std::stoi(word[1].substr(colon + 1), nullptr, 16)});
    }
  }
  return doors;
}

std::vector<Listening> wait_for_doors(int pid) {
  for (int i = 0; i < 5000; ++i) {
    auto doors = doors_of(pid);
    if (!doors.empty()) return doors;
    pause_ms(2);
  }
  ADD_FAILURE() << "process " << pid << " listens nowhere";
  return {};
}

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    allow_many_descriptors();
    const CommandResult tuned = write_small_job(folder_, 3);
    ASSERT_EQ(tuned.status, 0) << tuned.err;
  }

  std::string at(int port) const {
    return "PIPEWRIGHT_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(port);
  }
  /// What a job that nobody has disturbed makes.
  std::string undisturbed(int steps = kSteps) {
    Job job(folder_, "undisturbed", at(free_port()));
    for (int p = 0; p < kProcesses; ++p) job.start(p, steps);
    job.expect_done();
    return job.bits();
  }

  Folder folder_;
};

TEST_F(Strangers, AtBothDoorsWhileItStartsAndTrainsChangeNothing) {
  const int steps = 60 + strangers();
  const std::string expected = undisturbed(steps);
  for (const std::string& token :
       {std::string(), "PIPEWRIGHT_TOKEN='" + std::string(kToken) + "' "}) {
    SCOPED_TRACE(token);
    Job job(folder_, token.empty() ? "saved" : "saved-by-token", token + at(free_port()));
    job.start(0, steps);
    job.start(1, steps);
    // Both wait for the third: one at the meeting's door, the other behind its own.
    std::vector<int> ports;
    for (int p = 0; p < 2; ++p) {
      for (const Listening& door : wait_for_doors(job.pid(p))) ports.push_back(door.port);
    }
    ASSERT_EQ(ports.size(), 2U);
    const std::vector<Socket> standing = crowd(ports, strangers());
    EXPECT_EQ(std::count_if(standing.begin(), standing.end(),
                            [](const Socket& socket) { return socket.is_open(); }),
              2 * strangers() * (static_cast<int>(kKinds.size()) - 1));  // one has left
    job.start(2, steps);
    std::atomic<bool> is_over{false};
    int rounds = 0;
    std::jthread others([&] {
      for (; !is_over.load(); ++rounds) {
        crowd(ports, 1);
        pause_ms(1);
      }
    });
    job.wait();
    is_over.store(true);
    others.join();
    EXPECT_GE(rounds, strangers());
    job.expect_done();
    EXPECT_EQ(job.bits(), expected);
  }
}

TEST_F(Strangers, AFloodOf300DelaysNobodyForLong) {
  const std::string expected = undisturbed();
  Job job(folder_, "saved", at(free_port()));
  job.start(0);
  const int port = wait_for_doors(job.pid(0)).at(0).port;
  std::vector<Socket> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(knock_as(Stranger::Silent, port));
  const auto begin = std::chrono::steady_clock::now();
  job.start(1);
  job.start(2);
  job.expect_done();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(job.bits(), expected);
}

/// Somebody who knows all but the token stands where process 0 should.
class Impostor {
 public:
  explicit Impostor(int port) : door_(listen_on_loopback(port)), thread_([this] { serve(); }) {}
  ~Impostor() {
    over_.store(true);
    thread_.join();
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  int visits() const { return visits_.load(); }
  /// All that he was told, only to be asked when he has gone.
  std::function<std::string()> heard() const {
    return [heard = heard_] { return *heard; };
  }

 private:
  void serve() {
    while (!over_.load()) {
      pollfd door{door_.get(), POLLIN, 0};
      if (poll(&door, 1, 10) <= 0) continue;
      const Socket guest(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(guest, Greeting{.challenge = random_block()});
      hear(guest);
      say(guest, Welcome{.proof = random_block()});
      hear(guest);
      ++visits_;
    }
  }
  /// For a while.
  void hear(const Socket& guest) const {
    std::array<char, 4096> part;
    pollfd speaking{guest.get(), POLLIN, 0};
    while (poll(&speaking, 1, 50) > 0) {
      const ssize_t got = recv(guest.get(), part.data(), part.size(), 0);
      if (got <= 0) return;
      heard_->append(part.data(), static_cast<std::size_t>(got));
    }
  }

  const Socket door_;
  const std::shared_ptr<std::string> heard_ = std::make_shared<std::string>();
  std::atomic<int> visits_{0};
  std::atomic<bool> over_{false};
  std::jthread thread_;
};

TEST_F(Strangers, AnImpostorLearnsNothingAndTheJobMeetsBehindHim) {
  const std::string expected = undisturbed();
  const int port = free_port();
  Job job(folder_, "saved", "PIPEWRIGHT_TOKEN='" + std::string(kToken) + "' " + at(port));
  std::function<std::string()> heard;
  int visits = 0;
  {
    Impostor impostor(port);
    job.start(1);
    job.start(2);
    for (int i = 0; i < 8000 && impostor.visits() < strangers(); ++i) pause_ms(5);
    heard = impostor.heard();
    visits = impostor.visits();
  }
  EXPECT_GE(visits, strangers());
  job.start(0);
  job.expect_done();
  EXPECT_EQ(job.bits(), expected);
  EXPECT_EQ(heard().find(kToken), std::string::npos);
  EXPECT_EQ(heard().size() % sizeof(Claim), 0U) << "more than claims was said to him";
  EXPECT_LE(heard().size(), static_cast<std::size_t>(visits + 2) * sizeof(Claim));
}

TEST_F(Strangers, FindNoDoorButWhereTheJobWasTold) {
  for (const std::string& place :
       {at(free_port()), "PIPEWRIGHT_RENDEZVOUS=file://" + (folder_.path() / "meeting").string()}) {
    SCOPED_TRACE(place);
    Job job(folder_, "saved", place);
    job.start(0, 1);
    job.start(1, 1);
    std::vector<Listening> doors;
    if (place.find("file:") == std::string::npos) {
      for (int p = 0; p < 2; ++p) {
        for (const Listening& door : wait_for_doors(job.pid(p))) doors.push_back(door);
      }
    }
    // What is open for moments only is looked for while it may be.
    job.start(2, 1);
    const int pid = job.pid(1);
    for (int i = 0; i < 500 && fs::exists("/proc/" + std::to_string(pid)); ++i) {
      for (const Listening& door : doors_of(pid)) doors.push_back(door);
      pause_ms(1);
    }
    job.expect_done();
    for (const Listening& door : doors) EXPECT_EQ(door.address, "0100007F");
  }
}

TEST_F(Strangers, WithAnotherTokenAreTurnedAwayAndSaidToBeSo) {
  const int port = free_port();
  Job job(folder_, "saved", "PIPEWRIGHT_TOKEN='" + std::string(kToken) + "' " + at(port));
  job.start(0);
  wait_for_doors(job.pid(0));
  Job stranger(folder_, "stolen", "PIPEWRIGHT_TOKEN='another' " + at(port));
  stranger.start(1);
  stranger.wait();
  EXPECT_EQ(stranger.result(1).status, 2);
  EXPECT_NE(stranger.result(1).err.find("its token is another one"), std::string::npos)
      << stranger.result(1).err;
  job.start(1);
  job.start(2);
  job.expect_done();
}

TEST_F(Strangers, KeepAJobWithoutATokenOnItsOwnHost) {
  const CommandResult result = shell(
      "PIPEWRIGHT_RANK=0 PIPEWRIGHT_WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=tcp://192.0.2.1:29500 "
      "$PW run plan.json --transport tcp",
      folder_);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("PIPEWRIGHT_TOKEN_FILE"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("head -c 32 /dev/urandom"), std::string::npos) << result.err;
}

}  // namespace strangers_test
}  // namespace pipewright::test
