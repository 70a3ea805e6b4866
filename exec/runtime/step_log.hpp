// What came of each step of a run, in bounded memory however many steps there are: the last few
// thousand lie in memory, what stands before them in a file without a name in the folder for
// temporary files (TMPDIR). Where that cannot be written, memory holds them all.
//
// Not thread-safe. A copy costs no more than what lies in memory. It shows what there was when it
// was made, also while its original grows; only one of them may grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

namespace pipewright::exec {

struct StepResult {
  std::optional<double> loss;  // nullopt if no device computes one
  std::int64_t step_ns = 0;    // from the step's start to the end of its last instruction
};

class StepLog {
 public:
  static constexpr std::size_t kInMemory = 4096;

  void push_back(const StepResult& step);
  std::size_t size() const { return in_file_ + recent_.size(); }
  bool empty() const { return size() == 0; }
  /// Throws MachineError if the file cannot be read.
  StepResult operator[](std::size_t step) const;
  StepResult front() const { return (*this)[0]; }
  StepResult back() const { return recent_.back(); }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = StepResult;
    using difference_type = std::ptrdiff_t;
    using pointer = const StepResult*;
    using reference = StepResult;

    Iterator(const StepLog& log, std::size_t step) : log_(&log), step_(step) {}
    StepResult operator*() const { return (*log_)[step_]; }
    Iterator& operator++() {
      ++step_;
      return *this;
    }
    void operator++(int) { ++step_; }
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    const StepLog* log_;
    std::size_t step_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  class File;

  std::shared_ptr<File> file_;  // null: not needed yet
  std::size_t in_file_ = 0;
  std::vector<StepResult> recent_;  // never empty but at the beginning
  bool has_no_file_ = false;        // it could not be written
};

}  // namespace pipewright::exec
