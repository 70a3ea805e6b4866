// Errors by blame become the exceptions of pipewright/errors.py.
#include "core/base/error.hpp"

#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

void raise(const char* name, const nb::object& exception) {
  const nb::object type = nb::module_::import_("pipewright.errors").attr(name);
  PyErr_SetObject(type.ptr(), exception.ptr());
}

void raise(const char* name, const Error& error) {
  const nb::object type = nb::module_::import_("pipewright.errors").attr(name);
  raise(name, type(error.what()));
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InputError& error) {
    const nb::object type = nb::module_::import_("pipewright.errors").attr("InputError");
    raise("InputError", type(error.what(), error.file(), error.pointer(), error.message()));
  } catch (const MachineError& error) {
    raise("MachineError", error);
  } catch (const Error& error) {  // ours, or of a run that failed
    raise("InternalError", error);
  }
}

}  // namespace

void bind_errors() { nb::register_exception_translator(translate); }

}  // namespace pipewright::python
