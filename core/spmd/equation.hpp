// What an operator does to the dimensions of its tensors, in the notation of einsum: one letter for
// each dimension, and the same letter where dimensions are the same. "mk,kn->mn" is a matrix
// product. From these letters and a few remarks follow all divisions of its tensors (merging).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/spmd/layout.hpp"

namespace pipewright::spmd {

/// The letter of a dimension that is not heard and never divided. Operators give letters of their
/// own as capitals, the rest come from letters().
inline constexpr char kUndivided = '1';
/// The letter of all dimensions of size 1: what divides them is heard, and then left out.
inline constexpr char kSizeOne = 'Z';

/// How the divisions of several tensors become one.
enum class Merging {
  /// A letter that two tensors divide differently is an error; a mesh dimension that two letters
  /// want goes to the first of them.
  FirstClaim,
  /// A letter is divided by every mesh dimension by which any tensor divides it, by several only if
  /// that is even; a mesh dimension that two letters want goes to the preferred or the longer one.
  Together,
  /// A mesh dimension on which the tensors differ goes to the letter that moves the fewest
  /// elements.
  LeastMoved,
};

/// What divides `follower` divides `leader` instead, where that is divided already, as far as both
/// together divide `elements` evenly (0: however they do).
struct Joining {
  char follower, leader;
  std::int64_t elements;
};

struct Equation {
  std::vector<std::string> inputs = {},
                           outputs = {};  // a string for each tensor, a letter for each dimension
  Merging merging = Merging::FirstClaim;
  /// Letters that each process needs whole; they are heard, and then left out.
  std::string whole = {};
  /// Letters that all inputs have to divide alike from the start.
  std::string agreeing = {};
  /// Letters that may not come divided, and why not.
  std::vector<std::pair<char, std::string>> refused = {};
  /// A letter is divided only as far as its mesh dimensions together divide this many elements.
  std::vector<std::pair<char, std::int64_t>> even = {};
  std::vector<Joining> joined = {};
  /// Where mesh dimensions are wanted twice (Together): these letters, in this order, before
  /// others.
  std::vector<std::string> preferred = {};
  /// Two letters that want one mesh dimension are an error.
  bool exclusive = false;
  /// Which of the tensors that are asked (inputs forward, outputs backward) are heard, in which
  /// order; all, if none is named.
  std::vector<std::size_t> heard = {};
  /// Backward, outputs keep the layout that was asked for: each process computes what it has to and
  /// keeps its part.
  bool outputs_stay = false;
  /// Inputs that keep their layout: the operator brings together itself what it needs of them.
  std::vector<std::size_t> staying = {};
  /// For each output the letters that are summed in it; where left out, those of the inputs that it
  /// does not have.
  std::vector<std::string> summed = {};
  Reduction reduction = Reduction::Sum;
  /// Outputs (first) that are computed from an input (second) alone, before it is brought where the
  /// others need it.
  std::vector<std::pair<std::size_t, std::size_t>> from_input_as_it_came = {};
};

/// `count` letters from the alphabet, the first being number `first`.
std::string letters(std::size_t count, std::size_t first = 0);
/// The letters of a tensor of this shape, each to be divided evenly.
std::vector<std::pair<char, std::int64_t>> evenly(const std::string& letters, const Shape& shape);

}  // namespace pipewright::spmd
