#include "core/base/error.hpp"
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

Json from_python(nb::handle value, const std::string& name, const std::string& pointer) {
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<std::int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::dict>(value)) {
    Json object = Json::object();
    for (const auto& [key, member] : nb::borrow<nb::dict>(value)) {
      const std::string word = nb::cast<std::string>(nb::str(key));
      object[word] = from_python(member, name, pointer + "/" + word);
    }
    return object;
  }
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    Json array = Json::array();
    for (const nb::handle element : value)
      array.push_back(from_python(element, name, pointer + "/" + std::to_string(array.size())));
    return array;
  }
  throw InputError(name, pointer,
                   "expected a dict, a list, a number, a string, a bool or None, got " +
                       nb::cast<std::string>(value.type().attr("__name__")));
}

}  // namespace pipewright::python
