#include "core/spmd/merging.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "core/base/error.hpp"

namespace pipewright::spmd {
namespace {

bool has(const std::string& set, char letter) { return set.find(letter) != std::string::npos; }

std::string place_of(const Voice& voice, char letter) {
  return "dimension " + std::to_string(voice.letters.find(letter)) + " of " + voice.name;
}

/// "mesh dimension 0", "mesh dimensions 0 and 1", "nothing".
std::string divisors_text(const std::vector<int>& dims) {
  if (dims.empty()) return "nothing";
  std::string text = dims.size() == 1 ? "mesh dimension " : "mesh dimensions ";
  for (std::size_t at = 0; at < dims.size(); ++at) {
    text += (at == 0 ? "" : " and ") + std::to_string(dims[at]);
  }
  return text;
}

std::int64_t pieces_of(const std::vector<int>& dims, const ProcessMesh& mesh) {
  std::int64_t pieces = 1;
  for (const int dim : dims) pieces *= mesh.size(dim);
  return pieces;
}

/// Takes away the last mesh dimensions until they are even, or only `least` are left.
void drop_uneven(std::vector<int>& dims, std::int64_t elements, const ProcessMesh& mesh,
                 std::size_t least = 0) {
  while (dims.size() > least && elements % pieces_of(dims, mesh) != 0) dims.pop_back();
}

/// Calls `take(voice, letter, mesh dimensions, elements)` for each dimension that has a letter.
template <class Take>
void for_each_division(const std::vector<Voice>& voices, Take take) {
  for (const Voice& voice : voices) {
    for (std::size_t at = 0; at < voice.letters.size(); ++at) {
      if (voice.letters[at] == kUndivided) continue;
      take(voice, voice.letters[at], voice.tensor.layout.dims[at], voice.tensor.shape[at]);
    }
  }
}

/// By mesh dimension, the letters that it divides, in the order in which they come.
std::map<int, std::string> claims_of(const Division& division, const std::string& order) {
  std::map<int, std::string> claims;
  for (const char letter : order) {
    const auto found = division.find(letter);
    if (found == division.end()) continue;
    for (const int dim : found->second) claims[dim] += letter;
  }
  return claims;
}

void take_away(Division& division, char letter, int dim) {
  std::vector<int>& dims = division[letter];
  dims.erase(std::remove(dims.begin(), dims.end(), dim), dims.end());
}

/// Letters in the order in which their divisions are heard.
std::string heard_order(const std::vector<Voice>& voices) {
  std::string order;
  for_each_division(voices, [&](const Voice&, char letter, const auto& dims, std::int64_t) {
    if (!dims.empty() && !has(order, letter)) order += letter;
  });
  return order;
}

Division by_first_claim(const std::vector<Voice>& voices) {
  Division division;
  std::map<char, const Voice*> source;
  for_each_division(voices, [&](const Voice& voice, char letter, const auto& dims, std::int64_t) {
    std::vector<int>& so_far = division[letter];
    if (dims.empty() || dims == so_far) return;
    if (!so_far.empty()) {
      throw InputError(divisors_text(so_far) + " divides " + place_of(*source[letter], letter) +
                       ", " + divisors_text(dims) + " divides " + place_of(voice, letter) +
                       ", and the two dimensions are one");
    }
    so_far = dims;
    source[letter] = &voice;
  });
  for (const auto& [dim, claimed] : claims_of(division, heard_order(voices))) {
    for (const char letter : claimed.substr(1)) take_away(division, letter, dim);
  }
  return division;
}

/// Preferred letters take what they want first, and of those preferred alike the longer one; the
/// others have what is left.
void settle_by_preference(const Equation& equation, std::map<char, std::int64_t>& elements,
                          std::string order, Division& division, const ProcessMesh& mesh) {
  std::set<int> taken;
  std::vector<std::string> classes = equation.preferred;
  classes.push_back(order);
  for (const std::string& preferred : classes) {
    std::string members;
    for (const char letter : order) {
      if (has(preferred, letter)) members += letter;
    }
    std::stable_sort(members.begin(), members.end(),
                     [&](char one, char other) { return elements[one] > elements[other]; });
    for (const char letter : members) {
      std::vector<int>& dims = division[letter];
      dims.erase(
          std::remove_if(dims.begin(), dims.end(), [&](int dim) { return taken.count(dim); }),
          dims.end());
      const bool evenly = std::any_of(equation.even.begin(), equation.even.end(),
                                      [&](const auto& entry) { return entry.first == letter; });
      drop_uneven(dims, elements[letter], mesh, evenly ? 0 : 1);
      taken.insert(dims.begin(), dims.end());
      order.erase(order.find(letter), 1);
    }
  }
}

Division together(const Equation& equation, const std::vector<Voice>& voices,
                  const ProcessMesh& mesh) {
  std::map<char, std::vector<std::vector<int>>> wishes;
  std::map<char, std::int64_t> elements;
  for_each_division(voices, [&](const Voice&, char letter, const auto& dims, std::int64_t size) {
    if (has(equation.whole, letter)) return;
    wishes[letter].push_back(dims);
    elements[letter] = std::max(elements[letter], size);
  });
  Division division;
  for (auto& [letter, wished] : wishes) {
    std::stable_sort(wished.begin(), wished.end(), [&](const auto& one, const auto& other) {
      if (one.size() != other.size()) return one.size() > other.size();
      return pieces_of(one, mesh) > pieces_of(other, mesh);
    });
    std::vector<int>& dims = division[letter];
    for (const std::vector<int>& wish : wished) {
      for (const int dim : wish) {
        if (std::find(dims.begin(), dims.end(), dim) == dims.end()) dims.push_back(dim);
      }
    }
  }
  settle_by_preference(equation, elements, heard_order(voices), division, mesh);
  return division;
}

/// The letter that a mesh dimension divides in a tensor, kUndivided if it divides none.
char letter_on(const Voice& voice, int dim) {
  for (std::size_t at = 0; at < voice.letters.size(); ++at) {
    const std::vector<int>& dims = voice.tensor.layout.dims[at];
    if (std::find(dims.begin(), dims.end(), dim) != dims.end()) return voice.letters[at];
  }
  return kUndivided;
}

/// Elements that have to move for `letter` to be divided by `dim` in all tensors; nothing if one of
/// them has fewer elements than the mesh dimension has processes.
std::optional<std::int64_t> moved_for(char letter, int dim, const std::vector<Voice>& voices,
                                      const ProcessMesh& mesh) {
  std::int64_t moved = 0;
  for (const Voice& voice : voices) {
    const std::size_t axis = voice.letters.find(letter);
    if (axis == std::string::npos) continue;
    if (voice.tensor.shape[axis] < mesh.size(dim)) return std::nullopt;
    if (!voice.tensor.layout.dims[axis].empty()) continue;
    std::int64_t local = mesh.size(dim);
    for (std::size_t at = 0; at < voice.letters.size(); ++at) {
      const std::int64_t pieces = pieces_of(voice.tensor.layout.dims[at], mesh);
      local *= (voice.tensor.shape[at] + pieces - 1) / pieces;
    }
    moved += local;
  }
  return moved;
}

Division by_least_moved(const Equation& equation, const std::vector<Voice>& voices,
                        const ProcessMesh& mesh) {
  std::set<char> candidates, taken;
  for_each_division(voices, [&](const Voice&, char letter, const auto&, std::int64_t) {
    if (!has(equation.whole, letter)) candidates.insert(letter);
  });
  Division division;
  const auto agreed = [&](int dim) {
    return std::all_of(voices.begin(), voices.end(), [&](const Voice& voice) {
      return letter_on(voice, dim) == letter_on(voices.front(), dim);
    });
  };
  for (std::size_t at = 0; at < voices.front().letters.size(); ++at) {
    const char letter = voices.front().letters[at];
    for (const int dim : voices.front().tensor.layout.dims[at]) {
      if (!agreed(dim) || candidates.count(letter) == 0) continue;
      division[letter].push_back(dim);
      taken.insert(letter);
    }
  }
  std::vector<int> open;
  for (int dim = 0; dim < mesh.dims(); ++dim) {
    if (!agreed(dim)) open.push_back(dim);
  }
  for (const int dim : open) {
    char best = kUndivided;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const char letter : candidates) {
      if (taken.count(letter) != 0) continue;
      const auto moved = moved_for(letter, dim, voices, mesh);
      if (moved && *moved < least) {
        best = letter;
        least = *moved;
      }
    }
    if (best == kUndivided) continue;
    division[best] = {dim};
    taken.insert(best);
  }
  return division;
}

void require_no_refused(const Equation& equation, const std::vector<Voice>& voices) {
  for (const Voice& voice : voices) {
    for (std::size_t at = 0; at < voice.letters.size(); ++at) {
      const std::vector<int>& dims = voice.tensor.layout.dims[at];
      for (const auto& [letter, reason] : equation.refused) {
        if (voice.letters[at] == letter && !dims.empty()) {
          throw InputError(divisors_text(dims) + " divides " + place_of(voice, letter) + ", but " +
                           reason);
        }
      }
      if (!has(equation.agreeing, voice.letters[at])) continue;
      for (const Voice& other : voices) {
        const std::size_t there = other.letters.find(voice.letters[at]);
        if (there != std::string::npos && other.tensor.layout.dims[there] != dims) {
          throw InputError(place_of(voice, voice.letters[at]) + " is divided by " +
                           divisors_text(dims) + ", and " + place_of(other, voice.letters[at]) +
                           " by " + divisors_text(other.tensor.layout.dims[there]) +
                           "; they have to be divided alike");
        }
      }
    }
  }
}

void require_exclusive(const std::vector<Voice>& voices) {
  std::map<int, std::pair<const Voice*, char>> owners;
  for (const Voice& voice : voices) {
    for (std::size_t at = 0; at < voice.letters.size(); ++at) {
      for (const int dim : voice.tensor.layout.dims[at]) {
        const auto [owner, fresh] = owners.try_emplace(dim, &voice, voice.letters[at]);
        if (!fresh && owner->second.second != voice.letters[at]) {
          throw InputError("mesh dimension " + std::to_string(dim) + " divides " +
                           place_of(*owner->second.first, owner->second.second) + " and " +
                           place_of(voice, voice.letters[at]) + ", which are two dimensions");
        }
      }
    }
  }
}

/// Letters whose division another one takes over, and those that have to divide evenly.
void settle(const Equation& equation, Division& division, const ProcessMesh& mesh) {
  for (const Joining& joining : equation.joined) {
    std::vector<int>& dims = division[joining.leader];
    const std::vector<int> more = division[joining.follower];
    division.erase(joining.follower);
    if (dims.empty() || more.empty()) continue;
    dims.insert(dims.end(), more.begin(), more.end());
    drop_uneven(dims, joining.elements, mesh, 1);
  }
  for (const auto& [letter, elements] : equation.even)
    drop_uneven(division[letter], elements, mesh);
  for (const char letter : equation.whole + kSizeOne) division.erase(letter);
}

}  // namespace

std::string letters(std::size_t count, std::size_t first) {
  if (first + count > 26) throw InputError("more than 26 different dimensions");
  std::string text;
  for (std::size_t at = 0; at < count; ++at) text += static_cast<char>('a' + first + at);
  return text;
}

std::vector<std::pair<char, std::int64_t>> evenly(const std::string& letters, const Shape& shape) {
  std::vector<std::pair<char, std::int64_t>> even;
  for (std::size_t at = 0; at < std::min(letters.size(), shape.size()); ++at) {
    even.emplace_back(letters[at], shape[at]);
  }
  return even;
}

Division merged(const Equation& equation, const std::vector<Voice>& voices,
                const ProcessMesh& mesh) {
  if (voices.empty()) return {};
  require_no_refused(equation, voices);
  if (equation.exclusive) require_exclusive(voices);
  Division division;
  switch (equation.merging) {
    case Merging::FirstClaim:
      division = by_first_claim(voices);
      break;
    case Merging::Together:
      division = together(equation, voices, mesh);
      break;
    case Merging::LeastMoved:
      division = by_least_moved(equation, voices, mesh);
      break;
  }
  settle(equation, division, mesh);
  return division;
}

Layout divided(const std::string& letters, const Division& division) {
  Layout layout = Layout::replicated(letters.size());
  for (std::size_t at = 0; at < letters.size(); ++at) {
    const auto found = division.find(letters[at]);
    if (found != division.end()) layout.dims[at] = found->second;
  }
  return layout;
}

}  // namespace pipewright::spmd
