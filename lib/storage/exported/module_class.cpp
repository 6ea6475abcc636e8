#include "storage/exported/module_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace dslaunch::storage {

namespace {

constexpr std::string_view kRoot = "__torch__.";
constexpr std::string_view kOwnRoot = "dslaunch.";
constexpr std::string_view kMangled = "___torch_mangle_";

// The classes of modules that are built into dslaunch (module_builder.h), each with the
// corresponding Python class. GPT-2's linear layer is a class of transformers, because its weight
// is transposed.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOwnClasses{
    {{"Linear", kLinearClass},
     {"TransposedLinear", "transformers.pytorch_utils.Conv1D"},
     {"Embedding", "torch.nn.modules.sparse.Embedding"},
     {"LayerNorm", "torch.nn.modules.normalization.LayerNorm"}}};

std::string_view last_word(std::string_view name) {
    return name.substr(name.rfind('.') + 1);
}

bool is_word(std::string_view text) {
    const auto fits = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
           std::ranges::all_of(text, fits);
}

}  // namespace

std::string class_of_type(std::string_view type_name) {
    if (type_name.starts_with(kRoot)) type_name.remove_prefix(kRoot.size());
    std::string name;
    for (const std::string& word : split(std::string(type_name), '.'))
        if (!word.starts_with(kMangled)) name += (name.empty() ? "" : ".") + word;
    if (!name.starts_with(kOwnRoot)) return name;
    // Removes the number that the builder appends to the class to make the type's name unique.
    std::string_view own = last_word(name);
    own = own.substr(0, own.find_last_not_of("0123456789") + 1);
    for (const auto& [builtin, python] : kOwnClasses)
        if (own == builtin) return std::string(python);
    return name;
}

std::string type_of_class(std::string_view class_name, int number) {
    const std::vector<std::string> words = split(std::string(class_name), '.');
    if (!std::ranges::all_of(words, is_word))
        return fmt::format("{}exported.Module{}", kRoot, number);
    std::string name(kRoot);
    for (size_t i = 0; i + 1 < words.size(); ++i) name += words[i] + ".";
    return fmt::format("{}{}{}.{}", name, kMangled, number, words.back());
}

bool names_class(std::string_view name, std::string_view class_name) {
    if (name == class_name) return true;
    constexpr std::string_view kShort = "torch.nn.", kLong = "torch.nn.modules.";
    return name.starts_with(kShort) && class_name.starts_with(kLong) &&
           name.substr(kShort.size()) == last_word(class_name);
}

}  // namespace dslaunch::storage
