#include "graph/models/module_builder.h"

#include <cctype>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::graph {
namespace {

constexpr size_t kIndent = 4;
constexpr std::string_view kSelf = "self.";

size_t indent_of(std::string_view line) {
    const size_t first = line.find_first_not_of(' ');
    return first == std::string_view::npos ? line.length() : first;
}

// A `for` line over children, and the lines that it repeats.
struct Loop {
    std::string index;  // empty if the loop has no index
    std::string variable;
    std::string list;  // "self.blocks"
    size_t indent = 0;
    std::vector<std::string> body;  // moved left by one level
};

// Reads a line such as "    for block in self.blocks:" into LOOP; returns false for any other line.
bool parse_loop(std::string_view line, Loop& loop) {
    constexpr std::string_view kEnumerate = "enumerate(";
    std::string_view text = trim(line);
    const size_t in = text.find(" in ");
    if (!text.starts_with("for ") || in == std::string_view::npos || !text.ends_with(":"))
        return false;
    const std::vector<std::string> variables = split(text.substr(4, in - 4), ',');
    text = text.substr(in + 4, text.length() - in - 5);
    if (text.starts_with(kEnumerate) && variables.size() == 2) {
        loop.index = std::string(trim(variables[0]));
        text = text.substr(kEnumerate.length(), text.length() - kEnumerate.length() - 1);
    }
    if (!text.starts_with(kSelf)) return false;
    loop.variable = std::string(trim(variables.back()));
    loop.list = std::string(text);
    loop.indent = indent_of(line);
    return true;
}

void write_out(const Loop& loop, int64_t children_total, std::string& out) {
    const std::string indent(loop.indent, ' ');
    for (int64_t child = 0; child < children_total; ++child) {
        if (!loop.index.empty()) out += fmt::format("{}{} = {}\n", indent, loop.index, child);
        out += fmt::format("{}{} = getattr({}, \"{}\")\n", indent, loop.variable, loop.list, child);
        for (const std::string& line : loop.body) out += line + '\n';
    }
}

bool is_name_part(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns LINE with each `$NAME` replaced by its name in NAMES.
std::string with_names(std::string_view line, const std::map<std::string, std::string>& names) {
    std::string out;
    for (size_t at = 0; at < line.length();) {
        if (line[at] != '$') {
            out += line[at++];
            continue;
        }
        size_t end = at + 1;
        while (end < line.length() && is_name_part(line[end])) ++end;
        out += names.at(std::string(line.substr(at + 1, end - at - 1)));
        at = end;
    }
    return out;
}

std::string literal(const IValue& constant) {
    if (constant.isInt()) return std::to_string(constant.toInt());
    if (constant.isBool()) return constant.toBool() ? "True" : "False";
    // '#' keeps the decimal point of 1.0, so that it stays a float.
    if (constant.isDouble()) return fmt::format("{:#}", constant.toDouble());
    DSL_CHECK(constant.isDoubleList(),
              "a class constant must be a number, a bool or a list of floats");
    std::string text;
    for (const double value : constant.toDoubleVector())
        text += fmt::format("{}{:#}", text.empty() ? "" : ", ", value);
    return "[" + text + "]";
}

// Returns a text that is equal for objects of the same type.
std::string type_word(const std::string& class_name, const ModuleParts& parts) {
    std::string word = class_name;
    for (const auto& [name, tensor] : parts.parameters) word += fmt::format(";{}", name);
    for (const auto& [name, child] : parts.children)
        word += fmt::format(";{}:{}", name, child.type()->name()->qualifiedName());
    for (const auto& [name, constant] : parts.constants)
        word += fmt::format(";{}={}", name, literal(constant));
    return word;
}

// Returns BODY with CONSTANT in place of every `self.NAME`: methods cannot read the constants of
// their class.
std::string with_literal(const std::string& body, const std::string& name, const IValue& constant) {
    const std::string reference = std::string(kSelf) + name, text = literal(constant);
    std::string out;
    size_t from = 0;
    for (size_t at = body.find(reference); at != std::string::npos;
         at = body.find(reference, at + 1)) {
        const size_t end = at + reference.length();
        if (end < body.length() && is_name_part(body[end])) continue;
        out += body.substr(from, at - from) + text;
        from = end;
    }
    return out + body.substr(from);
}

}  // namespace

std::map<std::string, std::string> class_bodies(std::string_view source,
                                                const std::map<std::string, std::string>& names) {
    std::map<std::string, std::string> bodies;
    std::string current;
    for (const std::string& line : split(source, '\n')) {
        const std::string_view text = trim(line);
        if (text.empty() || text.starts_with("#") || text == "pass") continue;
        if (line.starts_with("class ") && line.ends_with(":")) {
            current = line.substr(6, line.length() - 7);
            bodies[current];
            continue;
        }
        DSL_CHECK(!current.empty() && indent_of(line) >= kIndent, "line outside a class: {}", line);
        bodies[current] += with_names(line.substr(kIndent), names) + '\n';
    }
    return bodies;
}

std::string with_loops_written_out(const std::string& body,
                                   const std::map<std::string, int64_t>& children_total) {
    if (body.empty()) return body;
    const std::vector<std::string> lines = split(body.substr(0, body.length() - 1), '\n');
    std::string out;
    for (size_t at = 0; at < lines.size();) {
        Loop loop;
        if (!parse_loop(lines[at], loop)) {
            out += lines[at++] + '\n';
            continue;
        }
        for (++at; at < lines.size() && indent_of(lines[at]) > loop.indent; ++at)
            loop.body.push_back(lines[at].substr(kIndent));
        write_out(loop, children_total.at(loop.list.substr(kSelf.length())), out);
    }
    return out;
}

ModuleBuilder::ModuleBuilder(std::string_view source, std::string package,
                             const std::map<std::string, std::string>& names)
    : package_(std::move(package)),
      bodies_(class_bodies(source, names)),
      unit_(std::make_shared<CompilationUnit>()) {}

Module ModuleBuilder::make(const std::string& class_name, const ModuleParts& parts) {
    const auto body = bodies_.find(class_name);
    DSL_CHECK(body != bodies_.end(), "there is no class {} in the source of {}", class_name,
              package_);
    const std::string word = type_word(class_name, parts);
    const auto known = types_.find(word);
    const bool first = known == types_.end();
    std::string type_name = class_name;
    if (first)
        if (const int before = types_of_class_[class_name]++; before > 0)
            type_name += std::to_string(before);
    Module module =
        first
            ? Module(c10::QualifiedName("__torch__.dslaunch." + package_ + "." + type_name), unit_)
            : Module(unit_, known->second);
    // train() and eval() refuse a module without this attribute.
    module.register_attribute("training", c10::BoolType::get(), true);
    for (const auto& [name, tensor] : parts.parameters)
        module.register_parameter(name, tensor, /*is_buffer=*/false);
    for (const auto& [name, child] : parts.children) module.register_module(name, child);
    if (!first) return module;
    std::map<std::string, int64_t> children_total;
    for (const auto& [name, child] : parts.children)
        children_total[name] = static_cast<int64_t>(child.children().size());
    std::string methods = with_loops_written_out(body->second, children_total);
    for (const auto& [name, constant] : parts.constants) {
        module.type()->addConstant(name, constant);  // for hasattr and for readers of the archive
        methods = with_literal(methods, name, constant);
    }
    if (!methods.empty()) module.define(methods);
    types_[word] = module.type();
    return module;
}

}  // namespace dslaunch::graph
