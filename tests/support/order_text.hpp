// Orders given as the text of a file, a CSV or an order.json, and what is said where one is
// refused.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/order/order_json.hpp"

namespace pipewright::test {

inline Order order_of(const std::string& text) {
  if (text.front() != '{') return read_order_csv(text, "order.csv");
  const Json document = parse_json(text, "order.json");
  return read_order_json(JsonCursor(document, "order.json"));
}

/// Empty where it is not refused.
inline std::string refusal_of(const std::string& text) {
  try {
    (void)order_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace pipewright::test
