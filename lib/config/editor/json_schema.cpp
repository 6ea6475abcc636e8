#include "config/editor/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/editor/near_names.h"
#include "config/read/value.h"
#include "config/resolve/deepspeed_forms.h"
#include "config/schema/asking_sections.h"
#include "config/schema/schema.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

Value json_text(std::string text) {
    return make_value(std::move(text));
}

Value json_list(std::vector<Value> items) {
    Value list;
    list.kind = Kind::kList;
    list.items = std::move(items);
    return list;
}

Value json_texts(const std::vector<std::string>& texts) {
    Value list = json_list({});
    for (const std::string& text : texts) list.items.push_back(make_value(text));
    return list;
}

// An object that is filled in the order of the calls.
class Node {
  public:
    Node() { value_.kind = Kind::kObject; }

    Node& put(std::string key, Value value) {
        value_.keys.push_back(std::move(key));
        value_.items.push_back(std::move(value));
        return *this;
    }
    Node& put(std::string key, Node value) { return put(std::move(key), std::move(value.value_)); }
    Node& put(std::string key, const char* text) {
        return put(std::move(key), make_value(std::string(text)));
    }

    [[nodiscard]] bool empty() const { return value_.keys.empty(); }
    [[nodiscard]] Value take() { return std::move(value_); }

  private:
    Value value_;
};

// Returns a schema that refuses every value and shows MESSAGE to the user.
Node never(const std::string& message) {
    return std::move(Node()
                         .put("not", Node())
                         .put("errorMessage", json_text(message))
                         .put("doNotSuggest", make_value(true)));
}

// Returns a pattern for WORD in any case.
std::string any_case(std::string_view word) {
    std::string pattern;
    for (const char c : word) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isalpha(letter) != 0) {
            pattern += fmt::format("[{}{}]", static_cast<char>(std::toupper(letter)),
                                   static_cast<char>(std::tolower(letter)));
        } else {
            pattern += c == '.' ? std::string("\\.") : std::string(1, c);
        }
    }
    return pattern;
}

// Returns a schema for the strings WORDS. If IS_ANY_CASE is true, letters may have any case.
Node one_of_strings(const std::vector<std::string>& words, bool is_any_case) {
    std::vector<std::string> patterns;
    for (const std::string& word : words) {
        std::string pattern = any_case(word);
        if (!is_any_case) {
            pattern.clear();
            for (const char c : word) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
        }
        patterns.push_back(std::move(pattern));
    }
    return std::move(Node()
                         .put("type", "string")
                         .put("pattern", json_text(fmt::format("^({})$", join(patterns, "|")))));
}

std::string last_of(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

// Returns the facts about KEY that a user needs, in sentences.
std::string key_description(const KeySpec& key) {
    std::string text = key.doc;
    if (!key.only_for.empty())
        text += fmt::format(". Only for {}", join(split(key.only_for, '|'), ", "));
    if (!key.note.empty())
        text += fmt::format(
            ". {}: {}", key.status == KeyStatus::kNotYet ? "Not supported" : "No effect", key.note);
    return text;
}

bool is_range(const KeySpec& key) {
    return key.allowed.starts_with('>') || key.allowed == "0..1";
}

// Returns the choices of KEY as values of its type; empty if there are no choices.
std::vector<Value> choices_of(const KeySpec& key) {
    std::vector<Value> choices;
    if (key.allowed.empty() || is_range(key)) return choices;
    for (const std::string& word : split(key.allowed, '|')) {
        if (word == "null") continue;
        const auto number = parse_int(word);
        choices.push_back(key.type == KeyType::kInt && number ? make_value(*number)
                                                              : make_value(word));
    }
    return choices;
}

// Adds the limits of KEY's range to SCHEMA.
void put_range(const KeySpec& key, Node& schema) {
    if (key.allowed == ">0") schema.put("exclusiveMinimum", make_value(int64_t{0}));
    if (key.allowed == ">=0" || key.allowed == "0..1")
        schema.put("minimum", make_value(int64_t{0}));
    if (key.allowed == "0..1") schema.put("maximum", make_value(int64_t{1}));
}

Node number_of(const KeySpec& key, const char* type) {
    Node schema;
    schema.put("type", type);
    put_range(key, schema);
    return schema;
}

class SchemaMaker {
  public:
    Value run(const std::string& section) {
        Node schema = std::move(
            Node()
                .put("$schema", "http://json-schema.org/draft-07/schema#")
                .put("title", json_text(section.empty() ? "ds_config.json" : section))
                .put("description",
                     json_text(section.empty() ? "The config of a training, with DeepSpeed's keys "
                                                 "and the section `dslaunch`. Made by `dslaunch "
                                                 "config schema`."
                                               : find_key(section)->doc))
                .put("type", "object"));
        put_section(section, schema, false);
        schema.put("definitions",
                   Node().put("ofOtherType",
                              Node()
                                  .put("enum", json_list({Value{}, json_text("auto")}))
                                  .put("errorMessage",
                                       "is not a parameter of this type of optimizer or scheduler")
                                  .put("doNotSuggest", make_value(true))));
        return schema.take();
    }

  private:
    // Adds the keys of the section PATH to SCHEMA. If QUIET is true, checks only the types of these
    // keys, because an outer section was refused or may be switched off.
    void put_section(const std::string& path, Node& schema, bool quiet) {
        Node properties;
        Value others = make_value(false);
        for (const KeySpec& key : dslaunch::config::schema()) {
            const size_t dot = key.path.rfind('.');
            const std::string_view above = dot == key.path.npos
                                               ? std::string_view()
                                               : std::string_view(key.path).substr(0, dot);
            if (above != path || (path.empty() && dot != key.path.npos)) continue;
            const std::string name = last_of(key.path);
            if (name == "*") {
                others = key_schema(key, quiet).take();
            } else if (name != "[]") {
                properties.put(name, key_schema(key, quiet));
            }
        }
        const bool ignores_others = path.empty() || path == "pipeline";
        if (ignores_others) put_misplaced(path, properties);
        if (path.empty()) {
            properties.put("$schema", Node().put("type", "string"));
        }
        schema.put("properties", std::move(properties));
        if (ignores_others) {
            put_near_names(path, schema);
            others = Node()
                         .put("deprecationMessage",
                              "not a key of ds_config.json: DeepSpeed and dslaunch ignore it")
                         .take();
        }
        schema.put("additionalProperties", std::move(others));
        if (path == "optimizer" || path == "scheduler") put_types(path, schema);
    }

    // Refuses names in the section PATH that belong in the `dslaunch` section of the same name.
    static void put_misplaced(const std::string& path, Node& properties) {
        const std::string home = path.empty() ? "dslaunch" : "dslaunch." + path;
        const std::vector<std::string> own = key_names(path);
        for (const std::string& name : key_names(home))
            if (std::ranges::count(own, name) == 0)
                properties.put(
                    name, never(fmt::format("unknown key, did you mean `{}.{}`?", home, name)));
    }

    // Refuses mistyped names in a section that ignores unknown ones.
    static void put_near_names(const std::string& path, Node& schema) {
        Node patterns;
        if (path.empty())
            patterns.put("\\.", never("a key must not contain dots; write nested objects"));
        for (const std::string& name : key_names(path))
            patterns.put(near_names_pattern(name, key_names(path)),
                         never(fmt::format("unknown key, did you mean `{}`?", name)));
        schema.put("patternProperties", std::move(patterns));
    }

    // Adds the rule that each type has its own parameters: if a type is chosen, the parameters of
    // other types are refused.
    static void put_types(const std::string& section, Node& schema) {
        const std::string params = section + ".params.";
        std::set<std::string> types;
        for (const KeySpec& key : dslaunch::config::schema())
            if (key.path.starts_with(params) && !key.only_for.empty())
                for (const std::string& type : split(key.only_for, '|')) types.insert(type);
        std::vector<Value> rules;
        for (const std::string& type : types) {
            Node refused;
            for (const KeySpec& key : dslaunch::config::schema()) {
                if (!key.path.starts_with(params) || key.only_for.empty()) continue;
                const std::vector<std::string> owners = split(key.only_for, '|');
                if (std::ranges::count(owners, type) == 0)
                    refused.put(last_of(key.path), Node().put("$ref", "#/definitions/ofOtherType"));
            }
            const auto inside = [](const char* name, Node inner) {
                return std::move(
                    Node().put("properties", std::move(Node().put(name, std::move(inner)))));
            };
            Node condition = inside("type", one_of_strings({type}, true));
            condition.put("required", json_texts({"type"}));
            rules.push_back(
                Node()
                    .put("if", std::move(condition))
                    .put("then",
                         inside("params", std::move(Node().put("properties", std::move(refused)))))
                    .take());
        }
        schema.put("allOf", json_list(std::move(rules)));
    }

    Node key_schema(const KeySpec& key, bool quiet) {
        Node schema;
        schema.put("description", json_text(key_description(key)));
        if (key.doc.starts_with("Old name of "))
            schema.put("deprecationMessage", json_text(key.doc));
        if (key.type == KeyType::kObject) {
            put_object(key, schema, quiet);
            return schema;
        }
        if (key.fallback != "null") schema.put("default", default_value(key));
        if (key.status == KeyStatus::kNotYet && !quiet) {
            put_refused(key, schema);
        } else {
            put_value(key, schema, quiet);
        }
        return schema;
    }

    // Makes a key that is not available yet accept only values that switch its feature off. Accepts
    // all spellings of these values.
    static void put_refused(const KeySpec& key, Node& schema) {
        Value values = json_list({Value{}});
        const Value fallback = default_value(key);
        if (!fallback.is(Kind::kNull)) values.items.insert(values.items.begin(), fallback);
        if (takes_auto(key)) values.items.push_back(json_text("auto"));
        Node plain = std::move(Node().put("enum", std::move(values)));
        plain.put("errorMessage", json_text(key.note));
        const bool is_spelled = is_spelled_section(split(key.path, '.').front());
        std::vector<Value> forms = {plain.take()};
        if (is_spelled && fallback.is(Kind::kBool)) {
            const std::vector<std::string> words =
                fallback.boolean ? std::vector<std::string>{"true", "t", "yes", "y", "on", "1"}
                                 : std::vector<std::string>{"false", "f", "no", "n", "off", "0"};
            forms.push_back(one_of_strings(words, true).take());
            forms.push_back(
                Node().put("const", make_value(int64_t{fallback.boolean ? 1 : 0})).take());
        }
        put_forms(std::move(forms), schema);
    }

    // Adds to SCHEMA the rule that a value has one of FORMS. Without forms, any value is accepted.
    static void put_forms(std::vector<Value> forms, Node& schema) {
        if (forms.empty()) return;
        if (forms.size() > 1) {
            schema.put("anyOf", json_list(std::move(forms)));
            return;
        }
        for (size_t i = 0; i < forms.front().keys.size(); ++i)
            schema.put(forms.front().keys[i], std::move(forms.front().items[i]));
    }

    void put_object(const KeySpec& key, Node& schema, bool quiet) {
        // Accepts null in place of every object: of a section, of an object in a list, and of an
        // object under a name that the user chooses.
        std::vector<std::string> kinds = {"object", "null"};
        if (key.path == "zero_optimization") kinds.emplace_back("boolean");  // an old form
        const bool refused = key.status == KeyStatus::kNotYet && !quiet;
        if (refused && asks_by_presence(key.path)) {
            std::vector<Value> nothing = {Value{}, Node().take()};
            if (key.path == "datastates_ckpt") nothing.push_back(make_value(false));
            schema.put("enum", json_list(std::move(nothing)))
                .put("errorMessage", json_text(key.note));
            return;
        }
        const auto gate = refused ? switch_name_of(key.path) : std::nullopt;
        schema.put("type", json_texts(kinds));
        put_section(key.path, schema, quiet || gate.has_value() || may_be_off(key));
        if (gate) put_gate(key, *gate, schema);
    }

    // Refuses the section KEY if the key GATE in this section is true.
    static void put_gate(const KeySpec& key, std::string_view gate, Node& schema) {
        const std::vector<std::string> names = split(gate, '.');
        Node inner = std::move(Node()
                                   .put("not", Node().put("const", make_value(true)))
                                   .put("errorMessage", json_text(key.note)));
        for (size_t i = names.size(); i > 0; --i)
            inner = std::move(
                Node().put("properties", std::move(Node().put(names[i - 1], std::move(inner)))));
        schema.put("allOf", json_list({inner.take()}));
    }

    // Returns true for a section that has no effect until one of its keys switches it on.
    static bool may_be_off(const KeySpec& key) {
        if (key.status != KeyStatus::kSupported) return false;
        const KeySpec* const device = find_key(key.path + ".device");
        return find_key(key.path + ".enabled") != nullptr ||
               (device != nullptr && device->fallback == "none");
    }

    void put_value(const KeySpec& key, Node& schema, bool quiet) {
        std::vector<Value> forms;  // the forms that a value may have
        if (const std::vector<Value> choices = choices_of(key); !choices.empty()) {
            Value all = json_list(choices);
            if (takes_auto(key)) all.items.push_back(json_text("auto"));
            all.items.emplace_back();
            forms.push_back(Node().put("enum", std::move(all)).take());
            put_other_forms(key, forms);
        } else {
            put_types_of_value(key, forms, quiet);
        }
        put_forms(std::move(forms), schema);
    }

    // Adds further spellings of KEY's choices, which DeepSpeed accepts too.
    static void put_other_forms(const KeySpec& key, std::vector<Value>& forms) {
        std::vector<std::string> words = other_words(key.path);
        if (takes_any_case(key.path)) words = split(key.allowed, '|');
        if (key.type == KeyType::kInt && is_spelled_section(split(key.path, '.').front()))
            words = split(key.allowed, '|');
        // DeepSpeed accepts an unknown warmup_type: it prints a warning and uses its default.
        if (key.path == "scheduler.params.warmup_type")
            forms.push_back(Node().put("type", "string").take());
        if (!words.empty()) forms.push_back(one_of_strings(words, takes_any_case(key.path)).take());
    }

    void put_types_of_value(const KeySpec& key, std::vector<Value>& forms, bool quiet) {
        const bool spelled = is_spelled_section(split(key.path, '.').front());
        const auto text_like = [&](const char* pattern) {
            forms.push_back(Node().put("type", "string").put("pattern", json_text(pattern)).take());
        };
        switch (key.type) {
            case KeyType::kBool:
                forms.push_back(Node().put("type", "boolean").take());
                if (!spelled) break;
                forms.push_back(one_of_strings({"true", "t", "yes", "y", "on", "1", "false", "f",
                                                "no", "n", "off", "0"},
                                               true)
                                    .take());
                forms.push_back(Node()
                                    .put("type", "integer")
                                    .put("minimum", make_value(int64_t{0}))
                                    .put("maximum", make_value(int64_t{1}))
                                    .take());
                break;
            case KeyType::kInt:
                forms.push_back(number_of(key, "integer").take());
                if (spelled) text_like("^[-+]?[0-9]+$");
                break;
            case KeyType::kFloat:
                forms.push_back(number_of(key, "number").take());
                if (spelled) text_like("^[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?$");
                break;
            case KeyType::kFloats:
                forms.push_back(number_of(key, "number").take());
                forms.push_back(Node()
                                    .put("type", "array")
                                    .put("items", number_of(key, "number"))
                                    .put("minItems", make_value(int64_t{2}))
                                    .put("maxItems", make_value(int64_t{2}))
                                    .take());
                break;
            case KeyType::kString:
                put_string(key, forms);
                break;
            case KeyType::kStrings:
                forms.push_back(Node().put("type", "string").take());
                forms.push_back(
                    Node().put("type", "array").put("items", Node().put("type", "string")).take());
                break;
            case KeyType::kList:
                forms.push_back(list_of(key, quiet).take());
                break;
            case KeyType::kObject:
            case KeyType::kFree:
                return;
        }
        Value none = json_list({Value{}});
        if (takes_auto(key)) none.items.insert(none.items.begin(), json_text("auto"));
        forms.push_back(Node().put("enum", std::move(none)).take());
    }

    static void put_string(const KeySpec& key, std::vector<Value>& forms) {
        const std::string section = key.path.substr(0, key.path.find('.'));
        const bool is_type = key.path == "optimizer.type" || key.path == "scheduler.type";
        if (!is_type) return forms.push_back(Node().put("type", "string").take());
        forms.push_back(Node().put("enum", json_texts(available_types(section))).take());
        if (section == "optimizer")
            forms.push_back(one_of_strings(available_types(section), true).take());
    }

    // Returns the schema of the list KEY. Its elements are sections if keys.tsv has their keys, and
    // any values otherwise.
    Node list_of(const KeySpec& key, bool quiet) {
        Node list;
        list.put("type", "array");
        const std::string element = key.path + ".[]";
        const bool has_sections = std::ranges::any_of(
            dslaunch::config::schema(),
            [&](const KeySpec& one) { return one.path.starts_with(element + "."); });
        if (!has_sections) return list;
        Node item;
        item.put("type", "object");
        put_section(element, item, quiet);
        list.put("items", std::move(item));
        return list;
    }
};

}  // namespace

std::string json_schema(const std::string& section) {
    return to_json(SchemaMaker().run(section), 0) + "\n";
}

}  // namespace dslaunch::config
