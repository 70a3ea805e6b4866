// A small validator of JSON Schema (draft 2020-12), for the keywords that docs/schemas uses: it
// holds the published schemas against the readers. An unknown keyword is a failure of the test, so
// that a schema cannot say something nobody checks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright::test {

class SchemaSet {
 public:
  /// Loads every *.schema.json of the folder.
  explicit SchemaSet(const std::string& folder);

  /// What is wrong with the document, empty if nothing. `kind` is "plan" for plan.schema.json.
  std::vector<std::string> problems(const std::string& kind, const Json& document) const;

 private:
  struct Place {
    const Json* schema;
    std::string file;  // where its own "#/…" references start
  };
  Place resolve(const std::string& reference, const std::string& file) const;
  void check(const Place& place, const Json& value, const std::string& pointer,
             std::vector<std::string>& problems) const;
  void check_object(const Place& place, const Json& value, const std::string& pointer,
                    std::vector<std::string>& problems) const;
  void check_keyword(const std::string& keyword, const Json& argument, const Place& place,
                     const Json& value, const std::string& pointer,
                     std::vector<std::string>& problems) const;

  std::map<std::string, Json> files_;
};

}  // namespace pipewright::test
