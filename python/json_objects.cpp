#include "python/bindings.hpp"

namespace pipewright::python {

nb::object to_python(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return nb::bool_(value.get<bool>());
    case Json::value_t::number_integer:
      return nb::int_(value.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return nb::int_(value.get<std::uint64_t>());
    case Json::value_t::number_float:
      return nb::float_(value.get<double>());
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      return nb::str(text.data(), text.size());
    }
    case Json::value_t::array: {
      nb::list list;
      for (const Json& element : value) list.append(to_python(element));
      return list;
    }
    case Json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, member] : value.items()) dict[key.c_str()] = to_python(member);
      return dict;
    }
    default:
      return nb::none();
  }
}

}  // namespace pipewright::python
