// A value in a JSON document. Its errors give its path in the document. It is used to read the
// records of exported programs and the config.json of Hugging Face folders. The document and its
// path must outlive all JsonPlace objects. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// A view of one value: cheap to copy.
class JsonPlace {
  public:
    using Json = nlohmann::json;

    // Parses the whole TEXT. Throws Error{kInput} that begins with PATH if TEXT is not JSON, is
    // nested deeper than 200 levels, or has a key twice in one object.
    static Json parse(const std::string& path, std::string_view text);
    JsonPlace(const std::string& path, const Json& root)
        : path_(&path), root_(&root), json_(&root) {}

    // Each function below throws Error{kInput}, with the place in the document, if the value has
    // another type than the function expects. expect_object() also throws if the object has a key
    // that is not in ALLOWED; keys in ALLOWED may be missing.
    void expect_object(std::initializer_list<std::string_view> allowed) const;
    [[nodiscard]] bool has(const char* key) const;       // null counts as absent
    [[nodiscard]] bool mentions(const char* key) const;  // null counts as present
    [[nodiscard]] bool is_object() const { return json_->is_object(); }
    [[nodiscard]] JsonPlace at(const char* key) const;
    [[nodiscard]] int64_t integer() const;
    [[nodiscard]] double number() const;  // "Infinity", "-Infinity" and "NaN" are numbers here
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] const std::string& text() const;
    // Returns the name and the value of the only field of an object. Such an object stores one of
    // several alternatives: the name says which one.
    [[nodiscard]] std::pair<std::string, JsonPlace> only() const;
    // Calls USE for each member of an object whose keys are data, not field names.
    template <typename Use>
    void for_members(const Use& use) const {
        expect(json_->is_object(), "an object");
        for (const auto& item : json_->items()) use(item.key(), to(item.value()));
    }
    // Calls USE with each element of a list, in order.
    template <typename Use>
    void for_elements(const Use& use) const {
        expect(json_->is_array(), "a list");
        for (const Json& element : *json_) use(to(element));
    }
    // Throws Error{kInput}. The message gives the value's place in the document, and WHY.
    [[noreturn]] void refuse(const std::string& why) const;

  private:
    JsonPlace(const std::string* path, const Json* root, const Json* json)
        : path_(path), root_(root), json_(json) {}
    [[nodiscard]] JsonPlace to(const Json& value) const { return {path_, root_, &value}; }
    void expect(bool is_so, std::string_view kind) const;

    const std::string* path_;
    const Json* root_;
    const Json* json_;
};

}  // namespace dslaunch
