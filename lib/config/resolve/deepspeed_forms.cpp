#include "config/resolve/deepspeed_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "config/resolve/key_reader.h"
#include "config/schema/schema.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

// The sections that DeepSpeed reads with pydantic, which converts a value to the type of its key.
// For example, the text "true" becomes the bool true.
constexpr std::array<std::string_view, 12> kSpelledSections{
    "zero_optimization", "fp16",  "bf16",        "bfloat16", "tensor_parallel", "compile",
    "tensorboard",       "wandb", "csv_monitor", "comet",    "comms_logger",    "hybrid_engine"};

// Returns VALUE converted to TYPE if VALUE is a spelling of a value of TYPE: "true", "yes" and 1
// become true, "2" becomes 2, "1e-3" becomes 0.001. Returns any other VALUE unchanged.
Value in_type(KeyType type, const Value& value) {
    constexpr std::array<std::string_view, 6> kTrue{"true", "t", "yes", "y", "on", "1"};
    constexpr std::array<std::string_view, 6> kFalse{"false", "f", "no", "n", "off", "0"};
    Value spelled = value;
    if (type == KeyType::kBool && (value.is(Kind::kString) || value.is(Kind::kInt))) {
        const std::string word =
            value.is(Kind::kInt) ? std::to_string(value.integer) : lower(value.text);
        const bool is_true = std::ranges::find(kTrue, word) != kTrue.end();
        if (is_true || std::ranges::find(kFalse, word) != kFalse.end())
            spelled = make_value(is_true);
    } else if (type == KeyType::kInt && value.is(Kind::kString)) {
        if (const auto number = parse_int(value.text)) spelled = make_value(*number);
    } else if (type == KeyType::kFloat && value.is(Kind::kString)) {
        if (const auto number = parse_double(value.text)) spelled = make_value(*number);
    }
    spelled.origin = value.origin;
    return spelled;
}

void read_spelled(const std::string& path, Value& section) {
    for (size_t i = 0; i < section.keys.size(); ++i) {
        const std::string inner = fmt::format("{}.{}", path, section.keys[i]);
        const KeySpec* const key = find_key(inner);
        if (key == nullptr) continue;
        Value& value = section.items[i];
        if (value.is(Kind::kObject)) {
            read_spelled(inner, value);
        } else {
            value = in_type(key->type, value);
        }
    }
}

Value spelled_out(Value root) {
    for (size_t i = 0; i < root.keys.size(); ++i) {
        if (is_spelled_section(root.keys[i]) && root.items[i].is(Kind::kObject))
            read_spelled(root.keys[i], root.items[i]);
    }
    return root;
}

// A word with which DeepSpeed names a data type, and the word that the key uses here.
struct TypeWord {
    std::string_view word;
    const char* ours;
};
constexpr std::array<TypeWord, 6> kTypeWords{{{"bfloat16", "bf16"},
                                              {"float16", "fp16"},
                                              {"half", "fp16"},
                                              {"float32", "fp32"},
                                              {"float", "fp32"},
                                              {"int8", "int8"}}};
constexpr std::string_view kTorch = "torch.";  // an optional prefix of these words
constexpr std::array<std::string_view, 5> kTypeKeys{
    "torch_autocast.dtype", "data_types.grad_accum_dtype", "data_types.param_dtype",
    "data_types.buffer_dtype", "tensor_parallel.dtype"};
// Keys whose words DeepSpeed accepts in upper and lower case.
constexpr std::array<std::string_view, 6> kAnyCaseKeys{
    "communication_data_type", "seq_parallel_communication_data_type",
    "gradient_allreduce_op",   "checkpoint.tag_validation",
    "checkpoint.writer.type",  "checkpoint.writer.data_parallel"};

// Replaces the word at PATH by the result of OURS(word), unless the schema allows the word for that
// key.
template <typename Ours>
void rewrite_word(Value& root, std::string_view path, Ours ours) {
    const Value* const given = find_path(root, path);
    if (given == nullptr || !given->is(Kind::kString)) return;
    const std::vector<std::string> own = split(find_key(path)->allowed, '|');
    if (std::ranges::find(own, given->text) != own.end()) return;
    Value word = make_value(ours(given->text));
    word.origin = given->origin;
    static_cast<void>(set_path(root, path, std::move(word)));
}

Value in_known_words(Value root) {
    for (const std::string_view path : kTypeKeys)
        rewrite_word(root, path, [](const std::string& text) {
            const size_t begin = text.starts_with(kTorch) ? kTorch.size() : 0;
            const auto* found = std::ranges::find(kTypeWords, text.substr(begin), &TypeWord::word);
            return found == kTypeWords.end() ? text : std::string(found->ours);
        });
    for (const std::string_view path : kAnyCaseKeys)
        rewrite_word(root, path, [](const std::string& text) { return lower(text); });
    return root;
}

// Rewrites two old forms that DeepSpeed accepts: `zero_optimization: true`, which meant stage 1,
// and `datastates_ckpt: false`, which switches that section off.
Value in_new_form(Value root) {
    const Value* datastates = root.find("datastates_ckpt");
    if (datastates != nullptr && datastates->is(Kind::kBool) && !datastates->boolean)
        static_cast<void>(set_path(root, "datastates_ckpt", Value{}));
    const std::string section = "zero_optimization";
    const Value* zero = root.find(section);
    if (zero == nullptr || !zero->is(Kind::kBool)) return root;
    Value stage = make_value(int64_t{zero->boolean ? 1 : 0});
    stage.origin = zero->origin;
    Value whole;
    whole.kind = Kind::kObject;
    whole.origin = zero->origin;
    whole.keys = {"stage"};
    whole.items = {std::move(stage)};
    static_cast<void>(set_path(root, section, std::move(whole)));
    return root;
}

}  // namespace

bool is_spelled_section(std::string_view name) {
    return std::ranges::find(kSpelledSections, name) != kSpelledSections.end();
}

bool takes_any_case(std::string_view path) {
    return std::ranges::find(kAnyCaseKeys, path) != kAnyCaseKeys.end();
}

std::vector<std::string> other_words(std::string_view path) {
    std::vector<std::string> words;
    if (std::ranges::find(kTypeKeys, path) == kTypeKeys.end()) return words;
    const std::vector<std::string> own = split(find_key(path)->allowed, '|');
    for (const TypeWord& row : kTypeWords) {
        if (std::ranges::find(own, row.ours) == own.end()) continue;
        if (std::ranges::find(own, row.word) == own.end()) words.emplace_back(row.word);
        words.push_back(fmt::format("{}{}", kTorch, row.word));
    }
    return words;
}

Value in_one_form(Value root) {
    return in_known_words(in_new_form(spelled_out(std::move(root))));
}

}  // namespace dslaunch::config
