// tune(): from a job to a plan.
#include <variant>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/search/search.hpp"
#include "planner/search/search_json.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

/// A file, or what would stand in one.
using Document = std::variant<std::filesystem::path, nb::dict>;

struct Tuned {
  planner::Costing costing;
  std::optional<GivenPlan> plan;
  std::vector<std::string> notes;
  Json fields;  // search_fields()
};

/// phase, simulated so far, left out so far, the best step in ns so far or None.
using Progress =
    std::function<void(std::string, std::int64_t, std::int64_t, std::optional<std::int64_t>)>;

std::string name_of(const Document& document, const char* otherwise) {
  const auto* path = std::get_if<std::filesystem::path>(&document);
  return path != nullptr ? path->string() : otherwise;
}

Json json_of(const Document& document, const std::string& name) {
  if (const auto* dict = std::get_if<nb::dict>(&document)) return from_python(*dict, name);
  return parse_json(read_text(name), name);
}

std::optional<Profile> profile_of(const std::optional<Document>& document, const Job& job) {
  if (!document && job.profile_path.empty()) return std::nullopt;
  const Document meant = document ? *document : Document(std::filesystem::path(job.profile_path));
  const std::string name = name_of(meant, "profile");
  const Json json = json_of(meant, name);
  return read_profile(JsonCursor(json, name));
}

void report_to(planner::SearchOptions& options, const std::optional<Progress>& progress) {
  options.progress = [&progress](const planner::SearchProgress& now) {
    heed_signals();
    if (!progress) return;
    const nb::gil_scoped_acquire gil;
    (*progress)(std::string(now.phase), now.simulated, now.left_out,
                now.best != nullptr ? std::optional(now.best->step.value) : std::nullopt);
  };
}

Tuned tune(const Document& document, const std::optional<Document>& profile_document, int top,
           const std::optional<double>& budget, bool synthesis, int threads,
           const std::optional<Progress>& progress) {
  if (top < 1) throw InputError("top: expected 1 or more, got " + std::to_string(top));
  if (threads < 0)
    throw InputError("threads: expected 0 (one a core) or more, got " + std::to_string(threads));
  if (budget && !(*budget > 0)) throw InputError("budget: expected a time above 0 in seconds");
  const std::string name = name_of(document, "job");
  const Json json = json_of(document, name);
  Job job = read_job(JsonCursor(json, name));
  const auto profile = profile_of(profile_document, job);
  Tuned tuned;
  tuned.costing = planner::settle_costing(job, profile ? &*profile : nullptr);
  tuned.notes = job.notes;
  for (const std::string& assumed : job.cluster.assumed)
    tuned.notes.push_back("assumed of the cluster: " + assumed);
  planner::SearchOptions options;
  options.keep = top;
  options.threads = threads;
  options.synthesis = synthesis;
  options.only_executable = job.has_run_mode && job.tuner_run_mode != TunerRunMode::TunerOnly;
  options.budget_seconds = budget.value_or(0);
  report_to(options, progress);
  const nb::gil_scoped_release release;
  const Profile* const measured = profile ? &*profile : nullptr;
  planner::SearchResult result = planner::search(job, measured, options);
  planner::fill_intervals(job, measured, options.cores, result);
  tuned.fields = planner::search_fields(result);
  if (result.best) tuned.plan = given_plan(*std::move(result.best));
  return tuned;
}

}  // namespace

void bind_searches(nb::module_& module) {
  nb::class_<Tuned>(module, "Tuned", "What a search found.")
      .def_ro("plan", &Tuned::plan, "The best plan; None where nothing is possible.")
      .def_prop_ro(
          "ranked",
          [](const Tuned& self) { return nb::cast<nb::list>(to_python(self.fields["ranked"])); },
          "The best configurations, fastest first: a dict each, such as a pandas.DataFrame takes.")
      .def_prop_ro(
          "fields", [](const Tuned& self) { return nb::cast<nb::dict>(to_python(self.fields)); },
          "All that `tune --json` says of the search (docs/schemas/result.schema.json).")
      .def_prop_ro(
          "complete", [](const Tuned& self) { return self.fields["complete"].get<bool>(); },
          "False where the budget ran out before everything was ruled out.")
      .def_prop_ro(
          "costs", [](const Tuned& self) { return self.costing.why; },
          "Where the times come from, in a sentence.")
      .def_ro("notes", &Tuned::notes, "What was assumed, in sentences.")
      .def("__bool__", [](const Tuned& self) { return self.plan.has_value(); })
      .def("__repr__", [](const Tuned& self) {
        return "<Tuned " + (self.plan ? self.plan->title : std::string("nothing is possible")) +
               ">";
      });
  module.def(
      "tune", tune, nb::arg("job"), nb::arg("profile") = nb::none(), nb::arg("top") = 10,
      nb::arg("budget") = nb::none(), nb::arg("synthesis") = true, nb::arg("threads") = 0,
      nb::arg("progress") = nb::none(),
      "Searches meshes, cuts and schedules for the fastest plan. job and profile are files or the "
      "dicts that would stand in them (docs/plan-format.md); top is the length of the ranked "
      "table, budget a limit in seconds, threads 0 one for each core. progress is called with the "
      "phase, how many were simulated and left out so far, and the best step in ns or None. "
      "Ctrl-C ends it.");
}

}  // namespace pipewright::python
