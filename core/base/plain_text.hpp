// Text from an input as it may be shown: what a terminal would obey instead of showing is taken
// out, and the rest is valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pipewright {

/// Bytes of the UTF-8 sequence at the front of `text`, which is not empty; 0 if there is none.
std::size_t utf8_length(std::string_view text);

/// Whether a UTF-8 sequence is one that terminals obey or that hides what stands there: the control
/// characters (line feed and tab too), those of C1, and marks that turn the direction of writing.
bool is_control(std::string_view sequence);

/// With "?" for each control character but line feed and tab, and for each byte that is no UTF-8.
std::string plain_text(std::string_view text);

}  // namespace pipewright
