// Inputs that are endless, far larger than they look, or that talk to the terminal, and machines
// with little memory: each ends soon, with the right blame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/plain_text.hpp"
#include "tests/support/command_runner.hpp"
#include "traces/chrome/gzip.hpp"

namespace pipewright::test {
namespace inputs_test {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kExamples = PIPEWRIGHT_SOURCE_DIR "/examples/";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::string kTwoGiB;  // sanitizers take whole terabytes of addresses
#else
const std::string kTwoGiB = "ulimit -v 2000000; ";
#endif

std::string repeated(const std::string& text, int times) {
  std::string all;
  all.reserve(text.size() * static_cast<std::size_t>(times));
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Inputs, ADeviceIsNoFile) {
  const Folder folder;
  for (const std::string words :
       {"check /dev/zero", "simulate /dev/zero", "analyze /dev/zero", "tune /dev/zero",
        "compare /dev/zero /dev/zero", "check - </dev/zero", "analyze - </dev/zero",
        "export /dev/zero --format paddle"}) {
    const auto result = shell(kTwoGiB + "timeout 20 $PW " + words, folder);
    EXPECT_EQ(result.status, 2) << words << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("is a device; expected a file")) << words;
  }
  const auto data = shell(
      kTwoGiB + "timeout 20 $PW run " + kExamples + "plan.json --steps 1 --data /dev/zero", folder);
  EXPECT_EQ(data.status, 2) << data.err;
  EXPECT_THAT(data.err, HasSubstr("is a device"));
}

TEST(Inputs, AnEndlessPipeEndsWithTheLimit) {
  const Folder folder;
  const auto orders = shell(kTwoGiB + "cat /dev/zero | timeout 60 $PW check -", folder);
  EXPECT_EQ(orders.status, 2) << orders.err;
  EXPECT_THAT(orders.err, HasSubstr("larger than 256 MiB"));
  // Read as it comes, a trace is no JSON from its first byte on.
  const auto trace = shell(kTwoGiB + "yes | timeout 60 $PW analyze -", folder);
  EXPECT_EQ(trace.status, 2) << trace.err;
  EXPECT_THAT(trace.err, HasSubstr("is not JSON"));
}

TEST(Inputs, ASmallGzipFileCannotTakeTheMemory) {
  const Folder folder;
  const std::string empty = R"({"ph":"X"},)";
  const std::string action = R"({"ph":"X","name":"0F0","ts":0,"dur":0},)";
  const std::string name = R"({"ph":"M","name":"process_name","args":{"name":"x"}},)";
  for (const std::string& event : {empty, action, name}) {
    const std::string text =
        "{\"traceEvents\":[" + repeated(event, static_cast<int>(190'000'000 / event.size()));
    folder.write("small.json.gz", traces::gzip(text));
    const auto result = shell("ulimit -v 1000000; timeout 100 $PW analyze small.json.gz", folder);
    EXPECT_EQ(result.status, 2) << event << result.err;
    EXPECT_THAT(result.err, AnyOf(HasSubstr("times its size"), HasSubstr("is not JSON"))) << event;
  }
}

TEST(Inputs, OverlapsNeverGiveANegativeBubbleRatio) {
  const Folder folder;
  const auto slice = [](const std::string& name, const std::string& ts, const std::string& dur,
                        int thread) {
    return R"({"ph":"X","name":")" + name + R"(","args":{"action":")" + name + R"("},"ts":)" + ts +
           R"(,"dur":)" + dur + R"(,"pid":0,"tid":)" + std::to_string(thread) + "}";
  };
  std::string rounded;  // each within the rounding of the one before it
  for (int i = 0; i < 200; ++i)
    rounded += (i > 0 ? "," : "") + slice("0F" + std::to_string(i), "0.0", "0.9", i);
  const std::string own = R"(],"metadata":{"schema":"pipewright.trace/1"}})";
  const std::vector<std::string> traces = {
      R"({"traceEvents":[)" + rounded + "]}",
      R"({"traceEvents":[)" + rounded + own,
      R"({"traceEvents":[)" + slice("0F0", "-80000000000", "80000000001", 0) + own,
      R"({"traceEvents":[)" + slice("0F0", "0", "1", 0) + "," + slice("OPT", "0", "900000", 1) +
          "," + slice("OPT", "0", "900000", 2) + "]}",
      R"({"traceEvents":[)" + slice("0F0", "2e14", "1e15", 0) + "," +
          slice("1F0", "-2e15", "1", 1) + R"(],"baseTimeNanoseconds":9223372036854775807})",
  };
  for (const std::string& text : traces) {
    folder.write("t.json", text);
    const auto result = pipewright("analyze t.json --json", folder);
    if (result.status == 2) continue;  // told to be no trace of one step
    ASSERT_EQ(result.status, 0) << result.err;
    const auto document = nlohmann::json::parse(result.out);
    EXPECT_GE(document["bubble_ratio"], 0.0) << text.substr(0, 200);
    EXPECT_LE(document["bubble_ratio"], 1.0);
  }
}

TEST(Inputs, ManyLayersAreRefusedOrSearchedSoon) {
  const Folder folder;
  const auto tuner = [&](int layers) {
    folder.write("tuner.json", R"({"dp_degree": "auto", "mp_degree": "auto", "pp_degree": "auto",
      "micro_batch_size": "auto", "nodes": 2, "gpus_per_node": 8,
      "model_cfg": {"hidden_size": 4096, "global_batch_size": 64, "num_layers": )" +
                                   std::to_string(layers) +
                                   R"(, "num_attention_heads": 32, "vocab_size": 50304,
      "seq_length": 2048}})");
    return shell("ulimit -t 15; $PW tune tuner.json --no-synthesis --threads 1", folder);
  };
  EXPECT_EQ(tuner(4094).status, 1);  // no configuration fits
  const auto refused = tuner(65535);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("/model_cfg/num_layers: expected"));
}

/// What no terminal may get from an input is not in it.
void expect_plain(const CommandResult& result, const std::string& words) {
  EXPECT_EQ(plain_text(result.out), result.out) << words;
  EXPECT_EQ(plain_text(result.err), result.err) << words;
}

TEST(TerminalText, OfAnInputNeverReachesTheTerminalRaw) {
  const Folder folder;
  // Erases the screen, names the window, moves up, turns the writing, C1's introducer.
  const std::string evil = "\x1b[2J\x1b]0;title\x07\x1b[1A\r\x7f";
  const std::string hidden =
      "\\u001b[2J\\u001b]0;x\\u0007\\u009b31m\\u202e\\u007f\\r\\u001b[31mred";
  folder.write("model.json", R"({"schema": "pipewright.job/1", "model": {"schema":
    "pipewright.model/1", "name": ")" +
                                 hidden + R"(", "loss": "mse", "sequence": 1, "layers": [
    {"name": ")" + hidden + R"(", "kind": "linear", "in": 8, "out": 8},
    {"name": "b", "kind": "linear", "in": 8, "out": 8}]},
    "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 4})");
  folder.write("order.csv", "0F0,\x1b[2J0B0\xff\n");
  folder.write("trace.json", R"({"traceEvents":[{"ph":"M","name":"process_name","pid":0,"args":
    {"name":")" + hidden + R"("}},{"ph":"X","name":"0F0","ts":0,"dur":5,"pid":0,"tid":")" +
                                 hidden + R"("}],"metadata":{"schedule":")" + hidden + "\"}}");
  folder.write("bad.json", "{\"schema\": \"" + evil + "\"}");
  folder.write("keys.json", R"({"schema": "pipewright.job/1", ")" + hidden + "\": 1}");
  const std::vector<std::string> all = {
      "tune model.json -o plan.json",
      "tune model.json",
      "simulate plan.json --chart",
      "simulate plan.json",
      "check plan.json",
      "run plan.json --steps 1",
      "analyze trace.json",
      "compare plan.json plan.json",
      "check order.csv",
      "simulate order.csv --cost 'F=1,\x1b[2J=2'",
      "check bad.json",
      "tune bad.json",
      "tune keys.json",
      "analyze bad.json",
      "check '\x1b[2J\xff\xfe\x9b.json'",
      "'\x1b[2Jtune'",
      "check --'\x1b[2J'",
      "simulate -s '\x1b]0;x\x07\xff' -p 2 -m 2",
      "simulate -s 1f1b -p 2 -m 2 --policy '\x1b[2J\xc3'",
      "tune model.json --resume '\x1b[2J/\xff'",
      "run plan.json --save-checkpoint '/dev/null/\x1b[2J'",
  };
  for (const std::string& words : all) {
    expect_plain(shell("timeout 60 $PW " + words, folder), words);
    // On a terminal with colour too, but for our own codes, of which an input can bring none.
    const auto colored = shell("timeout 60 $PW " + words + " --color always || true", folder);
    EXPECT_THAT(colored.out, Not(HasSubstr("\x1b[2J"))) << words;
    EXPECT_THAT(colored.out, Not(HasSubstr("\x1b]"))) << words;
    EXPECT_THAT(colored.out, Not(HasSubstr("\x1b[31mred"))) << words;
  }
}

TEST(TerminalText, JsonIsUtf8AndSaysTheSame) {
  const Folder folder;
  folder.write("\xff\x1b.csv", "0F0,0B0\n");
  const auto result = pipewright("check --json '\xff\x1b.csv'", folder);
  EXPECT_EQ(plain_text(result.out), result.out);
  EXPECT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  // A name with controls that JSON lets stand comes back as it was.
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": {"schema":
    "pipewright.model/1", "name": "b\u009bc\u202ed", "loss": "mse", "sequence": 1,
    "layers": [{"name": "a", "kind": "linear", "in": 8, "out": 8}]},
    "cluster": {"preset": "local-cpu", "devices": 1}, "global_batch": 4})");
  const auto plan = pipewright("tune job.json -o - ", folder);
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plain_text(plan.out), plan.out);
  EXPECT_EQ(nlohmann::json::parse(plan.out)["model"]["name"],
            "b\xc2\x9b"
            "c\xe2\x80\xae"
            "d");
}

TEST(LittleMemory, IsCalledThat) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take whole terabytes of addresses";
#endif
  const Folder folder;
  folder.write("text", repeated("to be or not to be. ", 500));
  for (const int kib : {60'000, 100'000, 200'000}) {
    const std::string limit = "ulimit -v " + std::to_string(kib) + "; ";
    const auto run = shell(
        limit + "timeout 60 $PW run " + kExamples + "plan.json --steps 1 --data text", folder);
    EXPECT_EQ(run.status, 3) << kib << run.err;
    EXPECT_THAT(run.err, HasSubstr("not enough memory")) << kib;
    EXPECT_THAT(run.err, Not(HasSubstr("install"))) << kib;
    const auto doctor = shell(limit + "timeout 60 $PW doctor", folder);
    EXPECT_EQ(doctor.status, 0) << kib << doctor.err;
    EXPECT_THAT(doctor.out, Not(HasSubstr("install libopenblas"))) << kib;
  }
}

TEST(LittleMemory, NoMoreThreadsIsASentence) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take whole terabytes of addresses";
#endif
  const Folder folder;
  // No room for a second stack is how root meets it too, whom ulimit -u does not bind: four
  // megabytes more than the command needs to start, and stacks of sixteen.
  const auto tuned = shell(
      "v=16000; until (ulimit -v $v; $PW --version) >/dev/null 2>&1 || [ $v -gt 200000 ]; "
      "do v=$((v + 1000)); done; ulimit -v $((v + 4000)); ulimit -s 16000; $PW tune " +
          kExamples + "job.json --threads 4 --no-synthesis",
      folder);
  EXPECT_EQ(tuned.status, 3) << tuned.err;
  EXPECT_THAT(tuned.err, AnyOf(HasSubstr("no further thread can be started here"),
                               HasSubstr("not enough memory")));
}

}  // namespace inputs_test
}  // namespace pipewright::test
