// pipewright demo: the whole loop on this machine's CPUs, each step as the sub-command of its name
// would do it.
#include <filesystem>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "planner/base/cores.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/demo_text.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/comparison_text.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/running/measuring.hpp"
#include "tools/running/training.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kGlobalBatch = 16;
constexpr int kDefaultSteps = 200;
constexpr double kUniformLoss = 5.545;  // ln 256: every byte equally likely

class Demo {
 public:
  Demo(const Arguments& arguments, Session& session)
      : arguments_(arguments),
        session_(session),
        folder_(arguments.text_or("--out", "pipewright-demo")) {}

  int run() {
    prepare();
    profile();
    tune();
    simulate();
    train();
    compare();
    farewell();
    return result_.verify && agrees(*result_.verify) ? kDone : kAnswerIsNo;
  }

 private:
  std::string in_folder(const char* name) const { return (folder_ / name).string(); }

  void say(std::string_view text) {
    if (!session_.json()) session_.print(text);
    session_.flush();
  }
  void title(std::string_view text) {
    say("\n" + painted(session_.terminal(), Ink::Bold, text) + "\n");
  }

  /// The folder, the text to train on, and the job as it will be written.
  void prepare() {
    std::error_code error;
    const bool is_new = fs::create_directories(folder_, error);
    if (error || !fs::is_directory(folder_)) {
      throw InputError("--out: cannot make the folder " + folder_.string() +
                       (error ? ": " + error.message() : std::string()));
    }
    // The folder can be made again at any time, so git ignores it where it lies in a checkout.
    if (is_new) session_.save(in_folder(".gitignore"), "*\n");
    const auto data = arguments_.text("--data");
    const std::string text = data ? read_text(*data) : own_documents();
    session_.save(in_folder("corpus.txt"), text);
    job_.model = model_preset("gpt-tiny");
    job_.cluster = this_machine();
    job_.global_batch = kGlobalBatch;
    job_.strategy.dp_degree = {"1"};  // what it shows is a pipeline
    // On a single core a pipeline cannot win, but it can be shown.
    if (planner::cores_of_this_machine() == 1) job_.strategy.pp_degree = {"2"};
    job_.profile_path = "profile.json";
    job_.tuner_load_path = "plan.json";
    job_.training.data = "corpus.txt";
    job_.training.learning_rate = 3e-3;
    job_.training.steps = arguments_.integer_or("--steps", 2, 1'000'000, kDefaultSteps);
    say("gpt-tiny, byte by byte, on " + std::to_string(text.size() / 1024) +
        " KiB of text\nfiles go to " + folder_.string() + "\n");
  }

  void profile() {
    title("1. profile: what does this machine cost?");
    exec::ProfileOptions options;
    options.micro_batch_sizes = divisors_of(kGlobalBatch);
    options.ranks = std::min(2, planner::cores_of_this_machine());
    options.optimizer = exec::optimizer_spec(job_.training.optimizer, job_.training.learning_rate);
    profile_ = measure(job_.model, job_.cluster, options, session_);
    session_.save(in_folder("profile.json"), to_text(to_json(*profile_)));
    if (!session_.json()) say(profile_text(*profile_, job_.model, session_.terminal()));
  }

  void tune() {
    title("2. tune: which mesh, partition, micro-batches and schedule?");
    planner::SearchOptions options;
    options.keep = 8;
    const auto found = search_with_progress(job_, profile_, options, session_);
    if (!found.best) throw RunError("the tuner found no plan for this machine");
    session_.save(in_folder("plan.json"), to_text(to_json(*found.best)));
    session_.save(in_folder("job.json"), to_text(to_json(job_)));
    if (!session_.json()) print_search(found, session_);
    session_.flush();
  }

  void simulate() {
    title("3. simulate: load plan.json through tuner_load_path of job.json, and predict");
    const std::string path = in_folder("job.json");
    subject_ = subject_of_plan(load_tuned_plan(load_job(path)), path, Arguments(plain_command()));
    sim::Result result = sim::simulate(subject_.program, subject_.costs);
    if (!result.finished) throw RunError("the tuned plan gets stuck in the simulator");
    predicted_ = std::move(result.timeline);
    save_trace(session_, in_folder("sim.trace.json.gz"), subject_, predicted_,
               traces::TraceInfo::Kind::Simulated);
    show(predicted_, figures_of(subject_.program, predicted_, subject_.costs));
  }

  void train() {
    title("4. run: train with it, and check the gradients against a serial run");
    result_ = std::get<exec::cpu::CpuResult>(tools::train(
        *subject_.plan(), subject_.program, subject_.costs, {}, {.verify = true}, session_));
    if (!result_.finished()) throw RunError("the run got stuck; please report it");
    save_trace(session_, in_folder("real.trace.json.gz"), subject_, result_.timeline,
               traces::TraceInfo::Kind::Measured);
    if (!writes_steps_at_once(session_)) say(steps_text(result_));
    const double first = result_.steps.front().loss.value_or(kUniformLoss);
    const double last = result_.steps.back().loss.value_or(kUniformLoss);
    say(std::string("the loss ") + (last < first ? "fell to " : "did not fall: ") +
        std::to_string(last).substr(0, 5) +
        "; guessing gives ln 256 = " + std::to_string(kUniformLoss).substr(0, 5) + "\n");
    if (result_.verify) say(verify_text(*result_.verify, result_.first_step + 1));
    show(result_.timeline, result_.figures);
  }

  void compare() {
    title("5. compare: does the machine agree with the prediction?");
    comparison_ = traces::compare(subject_.program, predicted_, result_.timeline);
    say(comparison_text(comparison_, session_.terminal()));
  }

  void show(const Timeline& timeline, const Figures& figures) {
    const Terminal& terminal = session_.terminal();
    say(wrapped(subject_.title, terminal.width, 0));
    say(timeline_text(subject_.program, timeline, terminal.width, terminal));
    int peak = 0;
    for (const auto& rank : figures.ranks) peak = std::max(peak, rank.peak_activations);
    say("step " + format_duration(Nanoseconds(figures.makespan_ns)) + "   bubble " +
        percent_text(figures.bubble_ratio) + "   peak activations " + std::to_string(peak) + "\n");
  }

  void farewell() {
    if (session_.json()) {
      Json fields = comparison_fields(comparison_);
      fields["steps"] = Json::array();  // steps_list()
      fields["verify"] = verify_fields(result_.verify);
      fields["folder"] = folder_.string();
      session_.print_result(fields, steps_list(result_));
      return;
    }
    title("Now look at it");
    say("  drag " + in_folder("sim.trace.json.gz") + "\n  or   " + in_folder("real.trace.json.gz") +
        "\n  into ui.perfetto.dev, or load it in chrome://tracing; then try\n");
    say("  pipewright analyze " + in_folder("real.trace.json.gz") + "\n");
    say("  pipewright run " + in_folder("job.json") + " --steps 20 --verify\n");
    say("  pipewright simulate " + in_folder("plan.json") + "\n");
  }

  /// The demo has none of the flags that change a subject.
  static Command plain_command() {
    Command command;
    command.flags = subject_flags();
    return command;
  }

  const Arguments& arguments_;
  Session& session_;
  fs::path folder_;
  Job job_;
  std::optional<Profile> profile_;
  Subject subject_;
  Timeline predicted_;
  exec::cpu::CpuResult result_;
  traces::Comparison comparison_;
};

int run_demo(const Arguments& arguments, Session& session) {
  return Demo(arguments, session).run();
}

}  // namespace

Command demo_command() {
  Command command;
  command.name = "demo";
  command.summary = "the whole loop on this machine: profile, tune, simulate, run, compare";
  command.description =
      "Takes less than a minute on two cores. Trains a byte-level GPT on Pipewright's own "
      "documents "
      "or on --data, and leaves profile.json, job.json, plan.json and two traces in a folder, "
      "which git ignores if the demo made it. Exit status 1: the gradients differ from a serial "
      "run.";
  command.examples = {
      {"demo", "profile, tune, simulate, train, compare"},
      {"demo --data docs/semantics.md --out my-demo --steps 50", "on a text of your own"}};
  command.flags = {
      {.group = "Demo",
       .name = "--data",
       .argument = "FILE",
       .help = "text to train on",
       .is_file = true},
      {.group = "Demo",
       .name = "--out",
       .argument = "FOLDER",
       .help = "where the files go (pipewright-demo)",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::Folder},
      {.group = "Demo", .name = "--steps", .argument = "N", .help = "training steps (200)"},
  };
  command.run = run_demo;
  return command;
}

}  // namespace pipewright::tools
