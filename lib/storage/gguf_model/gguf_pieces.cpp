// The ways of splitting texts into pieces that both llama.cpp and this project know.
#include <algorithm>

#include "storage/gguf_model/gguf_tokenizer.h"

namespace dslaunch::storage {
namespace {

// The patterns as tokenizer.json files have them.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Several names stand for the same way of splitting. The first of them is written to files.
const std::vector<GgufPieces>& all_pieces() {
    static const std::vector<GgufPieces> all = {
        {"gpt-2", {"gpt2"}},
        {"olmo", {"gpt2"}},
        {"phi-2", {"gpt2"}},
        {"mpt", {"gpt2"}},
        {"smollm", {"digits", "gpt2"}},
        {"starcoder", {"digits", "gpt2"}},
        {"refact", {"digits", "gpt2"}},
        {"command-r", {"digits", "gpt2"}},
        {"codeshell", {"digits", "gpt2"}},
        {"exaone", {"digits", "gpt2"}},
        {"llama-bpe", {kLlama3}, true},
        {"llama3", {kLlama3}, true},
        {"llama-v3", {kLlama3}, true},
        {"chatglm-bpe", {kLlama3}},
        {"glm4", {kLlama3}},
        {"dbrx", {kLlama3}},
        {"smaug-bpe", {kLlama3}},
        {"qwen2", {kQwen2}},
        {"stablelm2", {kQwen2}},
        {"deepseek-r1-qwen", {kQwen2}},
        {"gpt-4o", {kGpt4o}},
        {"llama4", {kGpt4o}},
        {"tekken", {kTekken}, true},
    };
    return all;
}

}  // namespace

const GgufPieces* gguf_pieces_with(const std::vector<std::string>& steps, bool ignores_merges) {
    const GgufPieces* found = nullptr;
    for (const GgufPieces& pieces : all_pieces()) {
        if (pieces.steps != steps) continue;
        if (pieces.ignores_merges == ignores_merges) return &pieces;
        if (found == nullptr) found = &pieces;
    }
    return found;
}

const GgufPieces* gguf_pieces_named(std::string_view name) {
    const auto found = std::ranges::find(all_pieces(), name, &GgufPieces::name);
    return found == all_pieces().end() ? nullptr : &*found;
}

}  // namespace dslaunch::storage
