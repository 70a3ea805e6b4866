// Python's pickles of plain data: dicts, lists, tuples, strings, numbers, True, False and None. A
// pickle is a program for a small machine; what builds anything else (a class, a call, an array) is
// refused by name and never run, so a pickle of unknown origin may be read.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json.hpp"

namespace pipewright {

/// Of protocols 2 to 5. A tuple becomes an array; the keys of a dict have to be strings. Throws
/// InputError that names the file and the offset of the opcode, counted from 0.
Json parse_pickle(std::string_view bytes, const std::string& file);

}  // namespace pipewright
