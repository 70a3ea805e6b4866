// The opcodes are those of CPython's pickletools: a stack of values, marks on it, and a memo that
// names values for later use.
#include "core/base/pickle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/little_endian.hpp"
#include "core/base/plain_text.hpp"

namespace pipewright {
namespace {

constexpr int kNewest = 5;
constexpr std::size_t kDeepestPickle = 200;
// Of the document: a few bytes can name a value, and all that is in it, again and again.
constexpr std::size_t kMostPickledValues = 5'000'000;
constexpr std::size_t kMostPickledBytes = std::size_t{1} << 28;
constexpr std::size_t kMostPickledKeys = 10'000;

/// What is refused, by the names that pickletools gives.
constexpr std::array<std::pair<unsigned char, std::string_view>, 36> kRefused = {{
    {'c', "GLOBAL"},
    {0x93, "STACK_GLOBAL"},
    {'R', "REDUCE"},
    {'b', "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {0x81, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
    {0x96, "BYTEARRAY8"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x8e, "BINBYTES8"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {'I', "INT"},
    {'L', "LONG"},
    {'F', "FLOAT"},
    {0x8b, "LONG4"},
    {'2', "DUP"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'p', "PUT"},
    {'g', "GET"},
    {'d', "DICT"},
}};

/// A value by number: a pickle names lists and dicts before it fills them.
using ValueId = std::uint32_t;
struct List {
  std::vector<ValueId> elements;
  bool is_tuple = false;
};
struct Dict {
  std::vector<std::pair<ValueId, ValueId>> items;
};
/// Text is a part of the pickle's bytes.
using Value =
    std::variant<std::nullptr_t, bool, std::int64_t, double, std::string_view, List, Dict>;

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Json read() {
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty())
      fail("ends with " + std::to_string(stack_.size()) + " values and not with one");
    measures_.resize(values_.size());
    measure(stack_.back(), 0);
    return document(stack_.back());
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw InputError(
        file_, "",
        "not a pickle of plain data: at byte " + std::to_string(opcode_at_) + " it " + reason);
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("is cut off");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  std::uint64_t number(std::size_t width) { return little_endian(take(width)); }

  /// A whole number of `width` bytes in two's complement.
  std::int64_t signed_number(std::uint64_t width) {
    if (width > 8) fail("holds a whole number of more than 64 bits");
    if (width == 0) return 0;
    const std::uint64_t bits = number(width);
    const unsigned unused = 64 - 8 * static_cast<unsigned>(width);
    return static_cast<std::int64_t>(bits << unused) >> unused;
  }

  /// Big-endian.
  double floating() {
    const std::string_view taken = take(8);
    std::uint64_t bits = 0;
    for (const char c : taken) bits = bits << 8 | static_cast<unsigned char>(c);
    const double value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) fail("holds a number that is not finite");
    return value;
  }

  std::string_view text(std::uint64_t length) {
    const std::string_view taken = take(length);
    for (std::string_view rest = taken; !rest.empty();) {
      const std::size_t sequence = utf8_length(rest);
      if (sequence == 0) fail("holds text that is no UTF-8");
      rest.remove_prefix(sequence);
    }
    return taken;
  }

  void push(Value value) {
    if (values_.size() == kMostPickledValues) fail("holds more than 5 million values");
    stack_.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(value));
  }

  ValueId pop() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) fail("takes a value that is not there");
    const ValueId top = stack_.back();
    stack_.pop_back();
    return top;
  }

  ValueId top() const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) fail("takes a value that is not there");
    return stack_.back();
  }

  /// What stands above the last mark.
  std::vector<ValueId> since_mark() {
    if (marks_.empty()) fail("goes back to a mark that is not there");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<ValueId> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }

  void push_tuple(std::size_t count) {
    List tuple{std::vector<ValueId>(count), true};
    for (std::size_t i = count; i-- > 0;) tuple.elements[i] = pop();
    push(std::move(tuple));
  }

  void append(const std::vector<ValueId>& elements) {
    auto* list = std::get_if<List>(&values_[top()]);
    if (list == nullptr || list->is_tuple) fail("appends to what is no list");
    list->elements.insert(list->elements.end(), elements.begin(), elements.end());
  }

  void set_items(const std::vector<ValueId>& flat) {
    auto* dict = std::get_if<Dict>(&values_[top()]);
    if (dict == nullptr) fail("sets an item of what is no dict");
    if (flat.size() % 2 != 0) fail("sets a key without a value");
    for (std::size_t i = 0; i < flat.size(); i += 2) dict->items.emplace_back(flat[i], flat[i + 1]);
  }

  void memoize(std::uint64_t name) { memo_[name] = top(); }

  void recall(std::uint64_t name) {
    const auto known = memo_.find(name);
    if (known == memo_.end()) fail("recalls what it has not named");
    stack_.push_back(known->second);
  }

  [[noreturn]] void refuse(unsigned char opcode) const {
    const auto known = std::ranges::find(kRefused, opcode, &decltype(kRefused)::value_type::first);
    if (known != kRefused.end())
      fail("has the opcode " + std::string(known->second) +
           ", which dicts, lists, texts and numbers of protocols 2 to 5 do not need");
    fail("has a byte that is no opcode (" + std::to_string(opcode) + ")");
  }

  /// The opcodes of values; false: it is none.
  bool step_value(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        return push(nullptr), true;
      case 0x88:  // NEWTRUE
        return push(true), true;
      case 0x89:  // NEWFALSE
        return push(false), true;
      case 'K':  // BININT1
        return push(static_cast<std::int64_t>(number(1))), true;
      case 'M':  // BININT2
        return push(static_cast<std::int64_t>(number(2))), true;
      case 'J':  // BININT
        return push(signed_number(4)), true;
      case 0x8a:  // LONG1
        return push(signed_number(number(1))), true;
      case 'G':  // BINFLOAT
        return push(floating()), true;
      case 'X':  // BINUNICODE
        return push(text(number(4))), true;
      case 0x8c:  // SHORT_BINUNICODE
        return push(text(number(1))), true;
      case 0x8d:  // BINUNICODE8
        return push(text(number(8))), true;
      case '}':
        return push(Dict{}), true;
      case ']':
        return push(List{}), true;
      case ')':
        return push(List{{}, true}), true;
      default:
        return false;
    }
  }

  /// The opcodes that put values together; false: it is none.
  bool step_container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        return marks_.push_back(stack_.size()), true;
      case 't':  // TUPLE
        return push(List{since_mark(), true}), true;
      case 'l':  // LIST
        return push(List{since_mark()}), true;
      case 0x85:  // TUPLE1 to TUPLE3
      case 0x86:
      case 0x87:
        return push_tuple(opcode - 0x84U), true;
      case 'a': {  // APPEND
        const ValueId value = pop();
        return append({value}), true;
      }
      case 'e': {  // APPENDS
        const std::vector<ValueId> values = since_mark();
        return append(values), true;
      }
      case 's': {  // SETITEM
        const ValueId value = pop(), key = pop();
        return set_items({key, value}), true;
      }
      case 'u': {  // SETITEMS
        const std::vector<ValueId> values = since_mark();
        return set_items(values), true;
      }
      default:
        return false;
    }
  }

  /// One opcode; false: it was STOP.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(take(1).front());
    if (step_value(opcode) || step_container(opcode)) return true;
    switch (opcode) {
      case 0x80:  // PROTO
        if (number(1) > kNewest) fail("is of a protocol that is not known (0 to 5 are)");
        return true;
      case 0x95:  // FRAME
        if (number(8) > bytes_.size() - at_) fail("is cut off");
        return true;
      case 'q':  // BINPUT
        return memoize(number(1)), true;
      case 'r':  // LONG_BINPUT
        return memoize(number(4)), true;
      case 0x94:  // MEMOIZE
        return memoize(memo_.size()), true;
      case 'h':  // BINGET
        return recall(number(1)), true;
      case 'j':  // LONG_BINGET
        return recall(number(4)), true;
      case '.':
        return false;
      default:
        refuse(opcode);
    }
  }

  /// What a value is with all that is in it, so that a document is only built if it has an end.
  struct Measure {
    std::uint64_t values = 0, text_bytes = 0;  // values 0: not known yet
    std::size_t levels = 0;
  };

  const Measure& measure(ValueId id, std::size_t depth) {
    Measure& own = measures_[id];
    if (depth + own.levels > kDeepestPickle) fail("holds itself, or more than 200 levels");
    if (own.values > 0) return own;
    Measure whole{1, 0, 1};
    const auto add = [&](ValueId part) {
      const Measure& of = measure(part, depth + 1);
      whole.values += of.values;
      whole.text_bytes += of.text_bytes;
      whole.levels = std::max(whole.levels, of.levels + 1);
      if (whole.values > kMostPickledValues || whole.text_bytes > kMostPickledBytes)
        fail("holds more than 5 million values, or than 256 MiB of text");
    };
    const Value& value = values_[id];
    if (const auto* list = std::get_if<List>(&value)) {
      for (const ValueId element : list->elements) add(element);
    } else if (const auto* dict = std::get_if<Dict>(&value)) {
      for (const auto& [key, held] : dict->items) add(key), add(held);
    } else if (const auto* words = std::get_if<std::string_view>(&value)) {
      whole.text_bytes = words->size();
    }
    return own = whole;
  }

  Json document(ValueId id) const {
    const Value& value = values_[id];
    if (const auto* list = std::get_if<List>(&value)) {
      Json array = Json::array();
      for (const ValueId element : list->elements) array.push_back(document(element));
      return array;
    }
    if (const auto* dict = std::get_if<Dict>(&value)) return object(*dict);
    if (const auto* words = std::get_if<std::string_view>(&value)) return std::string(*words);
    if (const auto* truth = std::get_if<bool>(&value)) return *truth;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
    if (const auto* real = std::get_if<double>(&value)) return *real;
    return nullptr;
  }

  Json object(const Dict& dict) const {
    if (dict.items.size() > kMostPickledKeys) fail("holds a dict with more than 10000 keys");
    Json object = Json::object();
    for (const auto& [key, value] : dict.items) {
      const auto* name = std::get_if<std::string_view>(&values_[key]);
      if (name == nullptr) fail("holds a dict with a key that is no text");
      object[std::string(*name)] = document(value);
    }
    return object;
  }

  std::string_view bytes_;
  const std::string& file_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<Value> values_;
  std::vector<ValueId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, ValueId> memo_;
  std::vector<Measure> measures_;  // by value, once all are there
};

}  // namespace

Json parse_pickle(std::string_view bytes, const std::string& file) {
  return Unpickler(bytes, file).read();
}

}  // namespace pipewright
