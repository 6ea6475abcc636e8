// Writes the values of a tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "base/text/tokenizer_class.h"
#include "storage/gguf_model/gguf_tokenizer.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;

constexpr size_t kFileBytesMax = size_t{1} << 29;
constexpr std::string_view kBlank = "▁";  // in SentencePiece's tokens
constexpr float kControlScore = -10000;

std::optional<std::string> file_text(const std::string& path) {
    std::error_code unreadable;
    if (!std::filesystem::exists(path, unreadable)) return std::nullopt;
    return read_file(path, kFileBytesMax);
}

Json json_of(const std::string& path) {
    const auto text = file_text(path);
    return text ? JsonPlace::parse(path, *text) : Json();
}

std::string text_at(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return "";
    const Json& value = object[key];
    if (value.is_string()) return value.get<std::string>();
    return value.is_object() ? text_at(value, "content") : "";
}

bool flag_at(const Json& object, const char* key, bool otherwise) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_boolean()) return otherwise;
    return object[key].get<bool>();
}

// Returns the steps of STEP, which is one step, a sequence, or null.
std::vector<Json> steps_of(const Json& step, const char* list) {
    if (!step.is_object()) return {};
    if (text_at(step, "type") != "Sequence") return {step};
    std::vector<Json> all;
    if (step.contains(list) && step[list].is_array())
        for (const Json& one : step[list]) {
            const std::vector<Json> inner = steps_of(one, list);
            all.insert(all.end(), inner.begin(), inner.end());
        }
    return all;
}

class TokenizerWriter {
  public:
    TokenizerWriter(const std::string& folder, int64_t vocabulary, GgufValues& values)
        : folder_(folder),
          path_(folder + "/tokenizer.json"),
          json_(json_of(path_)),
          config_(json_of(folder + "/tokenizer_config.json")),
          values_(values) {
        if (!json_.is_object() || !json_.contains("model") || !json_["model"].is_object())
            refuse("has no `model`");
        // Changes json_ as transformers does when it loads the tokenizer: the tokenizer class may
        // change the content of tokenizer.json.
        apply_tokenizer_class({config_, json_of(folder + "/config.json")}, json_);
        read_tokens(vocabulary);
    }

    void write() {
        const Json& model = json_["model"];
        if (text_at(model, "type") != "BPE" || !model.contains("merges") ||
            !model["merges"].is_array())
            refuse(fmt::format("its model is `{}`; only BPE can be written as GGUF",
                               printable(text_at(model, "type"))));
        read_merges(model["merges"]);
        if (is_of_bytes()) {
            write_of_bytes();
        } else {
            write_of_characters();
        }
        write_special_tokens();
        if (const std::string chat = chat_template(); !chat.empty())
            values_.add("tokenizer.chat_template", chat);
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        fail(ExitCode::kInput, "{}: {}", printable(path_), why);
    }

    // Sets a token. If the model has no row for the token and CAN_BE_LEFT is true, leaves it out.
    void set(int64_t id, const std::string& text, GgufTokenKind kind, bool can_be_left) {
        if (id >= std::ssize(texts_) && can_be_left) {
            left_out_.insert(text);
            return;
        }
        if (id < 0 || id >= std::ssize(texts_))
            refuse(
                fmt::format("the token `{}` has the number {}, but the model's embedding has {} "
                            "rows",
                            printable(text), id, texts_.size()));
        texts_[static_cast<size_t>(id)] = text;
        kinds_[static_cast<size_t>(id)] = static_cast<int32_t>(kind);
        ids_.insert_or_assign(text, static_cast<int32_t>(id));
    }

    void read_tokens(int64_t vocabulary) {
        for (int64_t id = 0; id < vocabulary; ++id) texts_.push_back(fmt::format("[PAD{}]", id));
        kinds_.assign(texts_.size(), static_cast<int32_t>(GgufTokenKind::kUnused));
        const Json& model = json_["model"];
        const Json added = json_.value("added_tokens", Json::array());
        std::unordered_set<std::string> added_texts;
        for (const Json& token : added) added_texts.insert(text_at(token, "content"));
        if (model.contains("vocab") && model["vocab"].is_object())
            for (const auto& [text, id] : model["vocab"].items()) {
                if (!id.is_number_integer())
                    refuse("its `vocab` has a token whose number is not an integer");
                set(id.get<int64_t>(), text, GgufTokenKind::kNormal, added_texts.contains(text));
            }
        for (const Json& token : added) {
            if (!token.is_object() || !token.contains("id") || !token["id"].is_number_integer())
                refuse("an added token has no `id`");
            set(token["id"].get<int64_t>(), text_at(token, "content"),
                flag_at(token, "special", false) ? GgufTokenKind::kControl
                                                 : GgufTokenKind::kUserDefined,
                /*can_be_left=*/true);
        }
        if (!left_out_.empty())
            log_warn("compress",
                     "{}: {} added tokens, such as `{}`, have no row in the model's embedding, and "
                     "are not in the GGUF file",
                     printable(path_), left_out_.size(), printable(*left_out_.begin()));
    }

    void read_merges(const Json& merges) {
        for (const Json& merge : merges) {
            std::string left, right;
            if (merge.is_string()) {
                const auto text = merge.get<std::string>();
                if (text.starts_with("#version")) continue;
                const size_t blank = text.find(' ');
                if (blank == std::string::npos) refuse("a merge is not of two tokens");
                left = text.substr(0, blank);
                right = text.substr(blank + 1);
            } else {
                if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() ||
                    !merge[1].is_string())
                    refuse("a merge is not of two tokens");
                left = merge[0].get<std::string>();
                right = merge[1].get<std::string>();
            }
            merges_.emplace_back(std::move(left), std::move(right));
        }
    }

    [[nodiscard]] bool is_of_bytes() const {
        for (const Json& step : steps_of(json_.value("pre_tokenizer", Json()), "pretokenizers"))
            if (text_at(step, "type") == "ByteLevel") return true;
        return false;
    }

    // Returns the pieces into which texts are split.
    [[nodiscard]] const GgufPieces& pieces() const {
        std::vector<std::string> steps;
        for (const Json& step : steps_of(json_.value("pre_tokenizer", Json()), "pretokenizers")) {
            const std::string type = text_at(step, "type");
            if (type == "ByteLevel") {
                if (flag_at(step, "add_prefix_space", true))
                    refuse("`add_prefix_space` of ByteLevel cannot be written as GGUF");
                if (flag_at(step, "use_regex", true)) steps.emplace_back("gpt2");
            } else if (type == "Digits" && flag_at(step, "individual_digits", false)) {
                steps.emplace_back("digits");
            } else if (type == "Split" && step.contains("pattern") &&
                       !flag_at(step, "invert", false) && text_at(step, "behavior") == "Isolated") {
                steps.push_back(text_at(step["pattern"], "Regex"));
            } else {
                refuse(fmt::format("its pre-tokenizer `{}` cannot be written as GGUF",
                                   printable(type)));
            }
        }
        const bool ignores_merges = flag_at(json_["model"], "ignore_merges", false);
        const GgufPieces* const found = gguf_pieces_with(steps, ignores_merges);
        if (found == nullptr)
            refuse(fmt::format("llama.cpp has no way to split texts as its pre-tokenizer does: {}",
                               printable(join(steps, ", "))));
        if (found->ignores_merges != ignores_merges) require_merged_tokens(*found);
        return *found;
    }

    // Throws if the merges cannot make every token of the vocabulary from its characters. If they
    // can make every token, the result does not depend on whether llama.cpp merges pieces that are
    // tokens already.
    void require_merged_tokens(const GgufPieces& pieces) const {
        std::unordered_map<std::string, size_t> ranks;
        for (const auto& [left, right] : merges_) ranks.emplace(left + ' ' + right, ranks.size());
        for (size_t id = 0; id < texts_.size(); ++id) {
            if (!is(id, GgufTokenKind::kNormal) || makes_one_token(texts_[id], ranks)) continue;
            refuse(fmt::format(
                "its `ignore_merges` is {0}, but llama.cpp's `{1}` works as if it were {2}: "
                "no merges make the token `{3}`, so texts with this token would get other tokens",
                !pieces.ignores_merges, pieces.name, pieces.ignores_merges, printable(texts_[id])));
        }
    }

    // Returns true if the merges with these RANKS make TEXT one token.
    static bool makes_one_token(const std::string& text,
                                const std::unordered_map<std::string, size_t>& ranks) {
        std::vector<std::string> parts;
        for (const char c : text)
            if ((c & 0xC0) == 0x80 && !parts.empty()) {
                parts.back() += c;
            } else {
                parts.emplace_back(1, c);
            }
        while (parts.size() > 1) {
            size_t best = ranks.size(), at = 0;
            for (size_t i = 0; i + 1 < parts.size(); ++i)
                if (const auto found = ranks.find(parts[i] + ' ' + parts[i + 1]);
                    found != ranks.end() && found->second < best) {
                    best = found->second;
                    at = i;
                }
            if (best == ranks.size()) return false;
            parts[at] += parts[at + 1];
            parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
        return true;
    }

    [[nodiscard]] bool is(size_t id, GgufTokenKind kind) const {
        return kinds_[id] == static_cast<int32_t>(kind);
    }

    void write_of_bytes() {
        for (const Json& step : steps_of(json_.value("normalizer", Json()), "normalizers"))
            if (text_at(step, "type") != "NFC")
                refuse(fmt::format("its normalizer `{}` cannot be written as GGUF",
                                   printable(text_at(step, "type"))));
        values_.add("tokenizer.ggml.model", "gpt2");
        values_.add("tokenizer.ggml.pre", std::string_view(pieces().name));
        add_tokens();
        std::vector<std::string> merges;
        for (const auto& [left, right] : merges_) merges.push_back(left + " " + right);
        values_.add("tokenizer.ggml.merges", merges);
    }

    // Adds the tokens. llama.cpp reads no file with the same text twice.
    void add_tokens() {
        std::unordered_set<std::string_view> known;
        for (const std::string& text : texts_)
            if (!known.insert(text).second)
                refuse(fmt::format("has the token `{}` twice, which llama.cpp does not read",
                                   printable(text)));
        values_.add("tokenizer.ggml.tokens", texts_);
        values_.add("tokenizer.ggml.token_type", kinds_);
    }

    // Throws if the step Metaspace does not treat blanks as SentencePiece does.
    void require_plain_blanks(const Json& step) const {
        if (step.contains("replacement") && text_at(step, "replacement") != kBlank)
            refuse(
                fmt::format("its Metaspace has `{}` in place of blanks, which cannot be written "
                            "as GGUF",
                            printable(text_at(step, "replacement"))));
        if (!flag_at(step, "split", true)) return;
        for (size_t id = 0; id < texts_.size(); ++id)
            if (is(id, GgufTokenKind::kNormal) && texts_[id].find(kBlank, 1) != std::string::npos)
                refuse(
                    fmt::format("its Metaspace splits texts at blanks, but llama.cpp does not; "
                                "only llama.cpp would use the token `{}`",
                                printable(texts_[id])));
    }

    // Returns true if a blank is put in front of texts. Refuses steps that do not treat texts as
    // SentencePiece does.
    [[nodiscard]] bool puts_blank() const {
        bool puts = false;
        for (const Json& step : steps_of(json_.value("normalizer", Json()), "normalizers")) {
            const std::string type = text_at(step, "type");
            const bool is_meta = type == "Replace" && step.contains("pattern") &&
                                 text_at(step["pattern"], "String") == " " &&
                                 text_at(step, "content") == kBlank;
            if (type == "Prepend" && text_at(step, "prepend") == kBlank) {
                puts = true;
            } else if (!is_meta) {
                refuse(
                    fmt::format("its normalizer `{}` cannot be written as GGUF", printable(type)));
            }
        }
        for (const Json& step : steps_of(json_.value("pre_tokenizer", Json()), "pretokenizers")) {
            const std::string type = text_at(step, "type");
            // Gemma has a step that splits at blanks. It has no effect, because the normalizer has
            // already replaced blanks.
            const bool is_idle = type == "Split" && step.contains("pattern") &&
                                 text_at(step["pattern"], "String") == " ";
            if (type == "Metaspace") {
                require_plain_blanks(step);
                puts = puts || (text_at(step, "prepend_scheme") != "never" &&
                                flag_at(step, "add_prefix_space", true));
            } else if (!is_idle) {
                refuse(fmt::format("its pre-tokenizer `{}` cannot be written as GGUF",
                                   printable(type)));
            }
        }
        return puts;
    }

    void write_of_characters() {
        if (!flag_at(json_["model"], "byte_fallback", false))
            refuse("its model must have `byte_fallback` to be written as GGUF");
        const bool puts = puts_blank();
        for (size_t id = 0; id < texts_.size(); ++id) {
            const std::string& text = texts_[id];
            if (text.size() == 6 && text.starts_with("<0x") && text.ends_with(">"))
                kinds_[id] = static_cast<int32_t>(GgufTokenKind::kByte);
            if (text == text_at(json_["model"], "unk_token"))
                kinds_[id] = static_cast<int32_t>(GgufTokenKind::kUnknown);
        }
        const std::unordered_map<std::string, float> ranks = ranks_of_tokens();
        std::vector<float> scores(texts_.size());
        for (size_t id = 0; id < texts_.size(); ++id) {
            const auto rank = ranks.find(texts_[id]);
            scores[id] = is(id, GgufTokenKind::kNormal)
                             ? rank != ranks.end() ? rank->second
                                                   : -static_cast<float>(ranks.size() + 1 + id)
                         : is(id, GgufTokenKind::kByte) ? 0
                                                        : kControlScore;
            // llama.cpp looks for these tokens before it replaces blanks, so they must have real
            // blanks.
            if (is(id, GgufTokenKind::kUserDefined)) texts_[id] = with_blanks(texts_[id]);
        }
        values_.add("tokenizer.ggml.model", "llama");
        values_.add("tokenizer.ggml.pre", "default");
        add_tokens();
        values_.add("tokenizer.ggml.scores", scores);
        values_.add("tokenizer.ggml.add_space_prefix", puts);
    }

    static std::string with_blanks(std::string_view text) {
        std::string made;
        while (!text.empty()) {
            const bool is_blank = text.starts_with(kBlank);
            made += is_blank ? ' ' : text.front();
            text.remove_prefix(is_blank ? kBlank.size() : 1);
        }
        return made;
    }

    [[nodiscard]] bool is_normal(const std::string& text) const {
        const auto found = ids_.find(text);
        return found != ids_.end() &&
               is(static_cast<size_t>(found->second), GgufTokenKind::kNormal);
    }

    // Returns a score for each token that a merge can make. SentencePiece always joins the two
    // neighbours whose joint token has the highest score, so earlier merges get higher scores.
    // Throws if scores cannot express the order of the merges.
    [[nodiscard]] std::unordered_map<std::string, float> ranks_of_tokens() const {
        std::unordered_map<std::string, float> ranks;
        std::unordered_set<std::string> pairs;
        std::string last;
        for (const auto& [left, right] : merges_) {
            const std::string made = left + right;
            if (!is_normal(left) || !is_normal(right) || !is_normal(made)) continue;
            pairs.insert(left + '\n' + right);
            const bool is_new = ranks.emplace(made, -static_cast<float>(ranks.size() + 1)).second;
            if (!is_new && made != last)
                refuse_merges(made, "are not next to each other in the list");
            last = made;
        }
        for (size_t id = 0; id < texts_.size(); ++id) {
            const std::string& text = texts_[id];
            for (size_t i = 1; is(id, GgufTokenKind::kNormal) && i < text.size(); ++i) {
                if ((text[i] & 0xC0) == 0x80) continue;
                const std::string left = text.substr(0, i), right = text.substr(i);
                if (is_normal(left) && is_normal(right) && !pairs.contains(left + '\n' + right))
                    refuse_merges(text, fmt::format("leave out `{}` and `{}`", printable(left),
                                                    printable(right)));
            }
        }
        return ranks;
    }

    [[noreturn]] void refuse_merges(const std::string& token, const std::string& what) const {
        refuse(
            fmt::format("its merges for the token `{}` {}: llama.cpp joins any two neighbours that "
                        "make a token, so it would split some texts into other tokens",
                        printable(token), what));
    }

    // Returns the number of the token that CONFIG names at KEY.
    [[nodiscard]] std::optional<int32_t> special(const char* key) const {
        const std::string text = text_at(config_, key);
        if (left_out_.contains(text))
            refuse(
                fmt::format("`{}` of tokenizer_config.json is `{}`, for which the model's "
                            "embedding has no row",
                            key, printable(text)));
        const auto found = ids_.find(text);
        if (found == ids_.end()) return std::nullopt;
        return found->second;
    }

    // Returns the tokens that are put before (FIRST) or after every text.
    [[nodiscard]] std::vector<std::string> around(bool first) const {
        const Json post = json_.value("post_processor", Json());
        for (const Json& step : steps_of(post, "processors")) {
            const std::string type = text_at(step, "type");
            if (type == "ByteLevel") continue;  // it changes no token
            if (type != "TemplateProcessing" || !step.contains("single"))
                refuse(fmt::format("its post-processor `{}` cannot be written as GGUF",
                                   printable(type)));
            std::vector<std::string> before, after;
            bool is_after = false;
            for (const Json& part : step["single"]) {
                if (part.contains("Sequence")) is_after = true;
                if (part.contains("SpecialToken"))
                    (is_after ? after : before).push_back(text_at(part["SpecialToken"], "id"));
            }
            return first ? before : after;
        }
        return {};
    }

    void write_special_tokens() {
        const GenerationConfig config = read_tokens_of_config(folder_);
        std::vector<int32_t> ends = end_tokens_of(folder_);
        std::optional<int32_t> bos = special("bos_token"), eos = special("eos_token");
        if (!bos) bos = config.bos_token;
        if (!eos && !ends.empty()) eos = ends.front();
        const auto around_of = [&](bool first, const std::optional<int32_t>& own) {
            const std::vector<std::string> tokens = around(first);
            if (tokens.empty()) return false;
            const auto found = ids_.find(tokens.front());
            if (tokens.size() > 1 || found == ids_.end() || found->second != own)
                refuse(
                    "its post-processor adds other tokens than bos and eos to a text, which "
                    "cannot be written as GGUF");
            return true;
        };
        const bool adds_bos = around_of(true, bos), adds_eos = around_of(false, eos);
        values_.add("tokenizer.ggml.add_bos_token", adds_bos);
        values_.add("tokenizer.ggml.add_eos_token", adds_eos);
        const auto add = [&](const char* key, const std::optional<int32_t>& id) {
            if (id && *id >= 0 && *id < std::ssize(texts_))
                values_.add(fmt::format("tokenizer.ggml.{}", key), int64_t{*id});
        };
        add("bos_token_id", bos);
        add("eos_token_id", eos);
        std::erase(ends, eos.value_or(-1));
        if (!ends.empty()) add("eot_token_id", ends.front());
        if (ends.size() > 1) add("eom_token_id", ends[1]);
        if (ends.size() > 2)
            log_warn("compress",
                     "{}: the model has {} tokens that end a text; the GGUF file names the first 3",
                     printable(folder_), ends.size() + 1);
        add("unknown_token_id", special("unk_token"));
        add("padding_token_id", special("pad_token"));
    }

    [[nodiscard]] std::string chat_template() const {
        if (const auto text = file_text(folder_ + "/chat_template.jinja")) return *text;
        if (!config_.is_object() || !config_.contains("chat_template")) return "";
        const Json& held = config_["chat_template"];
        if (held.is_string()) return held.get<std::string>();
        if (held.is_array())
            for (const Json& one : held)
                if (text_at(one, "name") == "default") return text_at(one, "template");
        return "";
    }

    std::string folder_, path_;
    Json json_, config_;
    GgufValues& values_;
    std::vector<std::string> texts_;
    std::vector<int32_t> kinds_;
    std::unordered_map<std::string, int32_t> ids_;
    std::unordered_set<std::string> left_out_;  // tokens without a row in the embedding
    std::vector<std::pair<std::string, std::string>> merges_;
};

}  // namespace

void add_tokenizer_values(const std::string& folder, int64_t vocabulary, GgufValues& values) {
    const auto has = [&](const char* name) {
        std::error_code unreadable;
        return std::filesystem::exists(fmt::format("{}/{}", folder, name), unreadable);
    };
    if (has("tokenizer.json")) {
        TokenizerWriter(folder, vocabulary, values).write();
        return;
    }
    for (const char* other : {"tokenizer.model", "vocab.json", "tokenizer_config.json"})
        if (has(other))
            fail(ExitCode::kInput,
                 "{0}: has {1}, but no tokenizer.json, from which a GGUF file's tokenizer is made. "
                 "Make it in Python: transformers.AutoTokenizer.from_pretrained(\"{0}\")"
                 ".save_pretrained(\"{0}\")",
                 printable(folder), other);
    log_warn("compress", "{}: has no tokenizer.json, so that the GGUF file has no tokenizer",
             printable(folder));
    values.add("tokenizer.ggml.model", "none");
}

}  // namespace dslaunch::storage
