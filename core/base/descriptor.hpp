// A file descriptor of the operating system with one owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace pipewright {

/// Closes on every way out; close() reports what a late write error says.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

}  // namespace pipewright
