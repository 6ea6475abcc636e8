// Makes a tokenizer.json from values.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "storage/gguf_model/gguf_tokenizer.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kTokenBytesMax = 1024;
constexpr size_t kTokensMax = size_t{1} << 22;

// A merge of two tokens. The merged token's score decides the merge's place in the order.
struct Merge {
    std::string_view left, right;
    float score = 0;
};

size_t characters_of(std::string_view text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Reads one file's tokenizer.
class TokenizerReader {
  public:
    explicit TokenizerReader(const GgufContent& file) : values_(file.metadata) {}

    [[nodiscard]] TokenizerTexts read() {
        const std::string kind = values_.text_or("tokenizer.ggml.model", "none");
        if (kind == "none" || kind == "no_vocab") return {"", "{}\n", generation()};
        if (kind != "gpt2" && kind != "llama")
            values_.refuse("tokenizer.ggml.model",
                           fmt::format("is `{}`; supported are gpt2 (pairs of bytes) and llama "
                                       "(SentencePiece's pairs)",
                                       printable(kind)));
        is_of_bytes_ = kind == "gpt2";
        read_tokens();
        return {is_of_bytes_ ? of_bytes() : of_characters(), tokenizer_config(), generation()};
    }

  private:
    void read_tokens() {
        constexpr const char* kTokens = "tokenizer.ggml.tokens";
        constexpr const char* kKinds = "tokenizer.ggml.token_type";
        tokens_ = values_.texts(kTokens);
        if (tokens_.size() > kTokensMax) values_.refuse(kTokens, "has too many tokens");
        kinds_.assign(tokens_.size(), static_cast<int64_t>(GgufTokenKind::kNormal));
        if (values_.has(kKinds)) kinds_ = values_.integers(kKinds);
        if (kinds_.size() != tokens_.size())
            values_.refuse(kKinds, "has another length than tokenizer.ggml.tokens");
        for (size_t id = 0; id < tokens_.size(); ++id) {
            const std::string_view text = tokens_[id];
            // Marks a token without a text as unused: llama.cpp gives it a name that occurs in no
            // text.
            if (text.empty()) kinds_[id] = static_cast<int64_t>(GgufTokenKind::kUnused);
            if (is(id, GgufTokenKind::kUnused)) continue;
            if (text.size() > kTokenBytesMax)
                values_.refuse(kTokens, fmt::format("has a token of {} bytes; at most {} are "
                                                    "supported",
                                                    text.size(), kTokenBytesMax));
            for (size_t i = 0; i < text.size();) {
                const size_t length = utf8_length(text, i);
                if (length == 0)
                    values_.refuse(kTokens, fmt::format("has a token that is not UTF-8: `{}`",
                                                        printable(text)));
                i += length;
            }
            if (!ids_.emplace(text, id).second)
                values_.refuse(kTokens, fmt::format("has the token `{}` twice", printable(text)));
        }
    }

    [[nodiscard]] bool is(size_t id, GgufTokenKind kind) const {
        return kinds_[id] == static_cast<int64_t>(kind);
    }

    // Returns the token NAME if the file gives its number and the token exists. If the file gives
    // no number for a SentencePiece vocabulary, uses llama.cpp's default number.
    [[nodiscard]] std::optional<size_t> special(const char* name) const {
        const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
        if (!values_.has(key)) {
            constexpr std::string_view kUsual[] = {"unknown", "bos", "eos"};
            const auto* const usual = std::ranges::find(kUsual, name);
            const auto id = static_cast<size_t>(usual - std::begin(kUsual));
            if (is_of_bytes_ || id >= std::size(kUsual) || id >= tokens_.size())
                return std::nullopt;
            const bool is_special =
                is(id, GgufTokenKind::kControl) || is(id, GgufTokenKind::kUnknown);
            return is_special ? std::optional(id) : std::nullopt;
        }
        const int64_t id = values_.integer(key);
        // Some files have the largest number for "none".
        if (id < 0 || id >= std::ssize(tokens_)) return std::nullopt;
        return static_cast<size_t>(id);
    }

    void begin(JsonWriter& json) const {
        json.begin_object().field("version", "1.0").key("truncation").null();
        json.key("padding").null().key("added_tokens").begin_array();
        for (size_t id = 0; id < tokens_.size(); ++id) {
            const bool is_control = is(id, GgufTokenKind::kControl);
            const bool is_unknown = is(id, GgufTokenKind::kUnknown);
            if (!is_control && !is_unknown && !is(id, GgufTokenKind::kUserDefined)) continue;
            json.begin_object().field("id", id).field("content", tokens_[id]);
            for (const char* field : {"single_word", "lstrip", "rstrip", "normalized"})
                json.field(field, false);
            json.field("special", is_control || is_unknown).end_object();
        }
        json.end_array();
    }

    // Writes the step that adds bos and eos around a text.
    void post_processor(JsonWriter& json, bool adds_bos) const {
        const auto bos = special("bos"), eos = special("eos");
        const bool has_bos = bos && values_.flag_or("tokenizer.ggml.add_bos_token", adds_bos);
        const bool has_eos = eos && values_.flag_or("tokenizer.ggml.add_eos_token", false);
        json.key("post_processor");
        if (!has_bos && !has_eos) {
            json.null();
            return;
        }
        const auto token = [&](size_t id) {
            json.begin_object().key("SpecialToken").begin_object();
            json.field("id", tokens_[id]).field("type_id", 0).end_object().end_object();
        };
        const auto sequence = [&](const char* name, int type) {
            json.begin_object().key("Sequence").begin_object();
            json.field("id", name).field("type_id", type).end_object().end_object();
        };
        json.begin_object().field("type", "TemplateProcessing").key("single").begin_array();
        if (has_bos) token(*bos);
        sequence("A", 0);
        if (has_eos) token(*eos);
        json.end_array().key("pair").begin_array();
        sequence("A", 0);
        sequence("B", 1);
        json.end_array().key("special_tokens").begin_object();
        std::unordered_set<size_t> written;
        for (const auto& [has, id] : {std::pair(has_bos, bos), std::pair(has_eos, eos)}) {
            if (!has || !written.insert(*id).second) continue;
            json.key(tokens_[*id]).begin_object().field("id", tokens_[*id]);
            json.key("ids").begin_array().value(*id).end_array();
            json.key("tokens").begin_array().value(tokens_[*id]).end_array().end_object();
        }
        json.end_object().end_object();
    }

    void vocabulary(JsonWriter& json) const {
        json.key("vocab").begin_object();
        for (size_t id = 0; id < tokens_.size(); ++id)
            if (!is(id, GgufTokenKind::kUnused)) json.key(tokens_[id]).value(id);
        json.end_object();
    }

    void step(JsonWriter& json, const std::string& step) const {
        if (step == "digits") {
            json.begin_object().field("type", "Digits").field("individual_digits", true);
            json.end_object();
            return;
        }
        if (step == "gpt2") return;  // ByteLevel itself
        json.begin_object().field("type", "Split").key("pattern").begin_object();
        json.field("Regex", step).end_object().field("behavior", "Isolated");
        json.field("invert", false).end_object();
    }

    static void byte_level(JsonWriter& json, bool has_pattern) {
        json.begin_object().field("type", "ByteLevel").field("add_prefix_space", false);
        json.field("trim_offsets", true).field("use_regex", has_pattern).end_object();
    }

    [[nodiscard]] std::string of_bytes() const {
        constexpr const char* kPre = "tokenizer.ggml.pre";
        constexpr const char* kMerges = "tokenizer.ggml.merges";
        const std::string name = values_.text_or(kPre, "default");
        const GgufPieces* const pieces = gguf_pieces_named(name);
        if (pieces == nullptr)
            values_.refuse(kPre, fmt::format("is `{}`, a way of splitting texts that is not "
                                             "supported",
                                             printable(name)));
        JsonWriter json(JsonWriter::Form::kCompact);
        begin(json);
        json.key("normalizer").null().key("pre_tokenizer").begin_object();
        json.field("type", "Sequence").key("pretokenizers").begin_array();
        for (const std::string& one : pieces->steps) step(json, one);
        byte_level(json, pieces->steps.back() == "gpt2");
        json.end_array().end_object();
        post_processor(json, /*adds_bos=*/pieces->ignores_merges);
        json.key("decoder");
        byte_level(json, true);
        json.key("model").begin_object().field("type", "BPE").key("dropout").null();
        json.key("unk_token").null().field("continuing_subword_prefix", "");
        json.field("end_of_word_suffix", "").field("fuse_unk", false);
        json.field("byte_fallback", false).field("ignore_merges", pieces->ignores_merges);
        vocabulary(json);
        json.key("merges").begin_array();
        for (const std::string_view merge : values_.texts(kMerges)) {
            const size_t blank = merge.find(' ', 1);
            const std::string_view left = merge.substr(0, blank);
            const std::string_view right =
                blank == std::string_view::npos ? "" : merge.substr(blank + 1);
            if (!ids_.contains(left) || !ids_.contains(right) ||
                !ids_.contains(std::string(left).append(right)))
                values_.refuse(kMerges, fmt::format("has the merge `{}`, whose tokens are not all "
                                                    "in the vocabulary",
                                                    printable(merge)));
            json.begin_array().value(left).value(right).end_array();
        }
        json.end_array().end_object();
        return json.end_object().text();
    }

    // Returns the merges of a SentencePiece vocabulary: every division of a token into two tokens,
    // in the order of the tokens' scores.
    [[nodiscard]] std::vector<Merge> merges_by_score() const {
        constexpr const char* kScores = "tokenizer.ggml.scores";
        const std::vector<double> scores = values_.numbers(kScores);
        if (scores.size() != tokens_.size())
            values_.refuse(kScores, "has another length than tokenizer.ggml.tokens");
        const auto may_merge = [&](std::string_view text) {
            const auto found = ids_.find(text);
            return found != ids_.end() && is(found->second, GgufTokenKind::kNormal);
        };
        std::vector<Merge> merges;
        for (size_t id = 0; id < tokens_.size(); ++id) {
            if (!is(id, GgufTokenKind::kNormal)) continue;
            const std::string_view text = tokens_[id];
            for (size_t i = 1; i < text.size(); ++i) {
                if ((text[i] & 0xC0) == 0x80) continue;
                const std::string_view left = text.substr(0, i), right = text.substr(i);
                if (may_merge(left) && may_merge(right))
                    merges.push_back({left, right, static_cast<float>(scores[id])});
            }
        }
        std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
            const auto order = [](const Merge& merge) {
                return std::tuple(-merge.score, -static_cast<int64_t>(characters_of(merge.left)),
                                  -static_cast<int64_t>(characters_of(merge.right)));
            };
            return order(a) < order(b);
        });
        return merges;
    }

    [[nodiscard]] std::string of_characters() const {
        const bool puts_blank = values_.flag_or("tokenizer.ggml.add_space_prefix", true);
        const auto unknown = special("unknown");
        JsonWriter json(JsonWriter::Form::kCompact);
        begin(json);
        const auto replace = [&](const char* from, const char* to) {
            json.begin_object().field("type", "Replace").key("pattern").begin_object();
            json.field("String", from).end_object().field("content", to).end_object();
        };
        json.key("normalizer").begin_object().field("type", "Sequence").key("normalizers");
        json.begin_array();
        if (puts_blank)
            json.begin_object().field("type", "Prepend").field("prepend", "▁").end_object();
        replace(" ", "▁");
        json.end_array().end_object().key("pre_tokenizer").null();
        post_processor(json, /*adds_bos=*/true);
        json.key("decoder").begin_object().field("type", "Sequence").key("decoders").begin_array();
        replace("▁", " ");
        json.begin_object().field("type", "ByteFallback").end_object();
        json.begin_object().field("type", "Fuse").end_object();
        if (puts_blank)
            json.begin_object()
                .field("type", "Strip")
                .field("content", " ")
                .field("start", 1)
                .field("stop", 0)
                .end_object();
        json.end_array().end_object();
        json.key("model").begin_object().field("type", "BPE").key("dropout").null();
        json.key("unk_token");
        if (unknown) {
            json.value(tokens_[*unknown]);
        } else {
            json.null();
        }
        json.key("continuing_subword_prefix").null().key("end_of_word_suffix").null();
        json.field("fuse_unk", true).field("byte_fallback", true).field("ignore_merges", false);
        vocabulary(json);
        json.key("merges").begin_array();
        for (const Merge& merge : merges_by_score())
            json.begin_array().value(merge.left).value(merge.right).end_array();
        json.end_array().end_object();
        return json.end_object().text();
    }

    [[nodiscard]] std::string tokenizer_config() const {
        JsonWriter json;
        json.begin_object().field("tokenizer_class", "PreTrainedTokenizerFast");
        const std::pair<const char*, const char*> names[] = {{"bos", "bos_token"},
                                                             {"eos", "eos_token"},
                                                             {"unknown", "unk_token"},
                                                             {"padding", "pad_token"}};
        for (const auto& [name, field] : names)
            if (const auto id = special(name)) json.field(field, tokens_[*id]);
        json.field("clean_up_tokenization_spaces", false);
        if (values_.has("tokenizer.chat_template"))
            json.field("chat_template", values_.text("tokenizer.chat_template"));
        return json.end_object().text() + "\n";
    }

    // Returns the text of generation_config.json: the tokens that begin and end a text.
    [[nodiscard]] std::string generation() const {
        JsonWriter json;
        json.begin_object();
        if (const auto bos = special("bos")) json.field("bos_token_id", *bos);
        std::vector<size_t> ends;
        for (const char* name : {"eos", "eot", "eom"})
            if (const auto id = special(name); id && std::ranges::find(ends, *id) == ends.end())
                ends.push_back(*id);
        // llama.cpp ends at each special token with one of these texts, whatever the file says.
        for (const char* text :
             {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
              "<|end_of_text|>", "<|eom_id|>", "<EOT>", "<end_of_utterance>"})
            if (const auto found = ids_.find(text);
                found != ids_.end() && is(found->second, GgufTokenKind::kControl) &&
                std::ranges::find(ends, found->second) == ends.end())
                ends.push_back(found->second);
        if (!ends.empty()) {
            json.key("eos_token_id").begin_array();
            for (const size_t id : ends) json.value(id);
            json.end_array();
        }
        if (const auto pad = special("padding")) json.field("pad_token_id", *pad);
        return json.end_object().text() + "\n";
    }

    const GgufMetadata& values_;
    bool is_of_bytes_ = false;
    std::vector<std::string_view> tokens_;
    std::vector<int64_t> kinds_;
    std::unordered_map<std::string_view, size_t> ids_;
};

}  // namespace

TokenizerTexts tokenizer_of_gguf(const GgufContent& file) {
    return TokenizerReader(file).read();
}

}  // namespace dslaunch::storage
