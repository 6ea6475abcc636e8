#include "storage/gguf/gguf_form.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

constexpr GgufFormFacts kForms[] = {
    {GgufForm::kF32, "F32", 1, 4},
    {GgufForm::kF16, "F16", 1, 2},
    {GgufForm::kQ4_0, "Q4_0", kShortBlock, 18},
    {GgufForm::kQ4_1, "Q4_1", kShortBlock, 20},
    {GgufForm::kQ5_0, "Q5_0", kShortBlock, 22},
    {GgufForm::kQ5_1, "Q5_1", kShortBlock, 24},
    {GgufForm::kQ8_0, "Q8_0", kShortBlock, 34},
    {GgufForm::kQ2K, "Q2_K", kLongBlock, 84},
    {GgufForm::kQ3K, "Q3_K", kLongBlock, 110},
    {GgufForm::kQ4K, "Q4_K", kLongBlock, 144},
    {GgufForm::kQ5K, "Q5_K", kLongBlock, 176},
    {GgufForm::kQ6K, "Q6_K", kLongBlock, 210},
    {GgufForm::kIq4Nl, "IQ4_NL", kShortBlock, 18},
    {GgufForm::kIq4Xs, "IQ4_XS", kLongBlock, 136},
    {GgufForm::kF64, "F64", 1, 8},
    {GgufForm::kBf16, "BF16", 1, 2},
};

// The names by number; an empty text stands for a number that was never used or was removed.
constexpr std::array<std::string_view, 42> kNames = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
    "",        "",      "",       "MXFP4", "NVFP4", "Q1_0"};

}  // namespace

const GgufFormFacts& facts_of(GgufForm form) {
    const auto* const found = std::ranges::find(kForms, form, &GgufFormFacts::form);
    DSL_CHECK(found != std::end(kForms), "form {}", static_cast<uint32_t>(form));
    return *found;
}

std::optional<GgufForm> gguf_form_of(uint32_t number) {
    const auto* const found = std::ranges::find_if(kForms, [&](const GgufFormFacts& facts) {
        return static_cast<uint32_t>(facts.form) == number;
    });
    if (found == std::end(kForms)) return std::nullopt;
    return found->form;
}

std::string_view gguf_form_name(uint32_t number) {
    return number < kNames.size() && !kNames[number].empty() ? kNames[number] : "unknown";
}

bool is_quantized(GgufForm form) {
    return facts_of(form).numel > 1;
}

int64_t gguf_bytes(GgufForm form, int64_t numel) {
    const GgufFormFacts& facts = facts_of(form);
    DSL_CHECK(numel % facts.numel == 0, "{} elements are no blocks of {}", numel, facts.name);
    return numel / facts.numel * facts.bytes;
}

}  // namespace dslaunch::storage
