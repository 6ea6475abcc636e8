// Writes the values of a tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "storage/gguf_model/gguf_tokenizer.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;

constexpr size_t kFileBytesMax = size_t{1} << 29;
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

    void set(int64_t id, const std::string& text, GgufTokenKind kind) {
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
        if (model.contains("vocab") && model["vocab"].is_object())
            for (const auto& [text, id] : model["vocab"].items()) {
                if (!id.is_number_integer()) refuse("its `vocab` has a number that is none");
                set(id.get<int64_t>(), text, GgufTokenKind::kNormal);
            }
        for (const Json& token : json_.value("added_tokens", Json::array())) {
            if (!token.is_object() || !token.contains("id") || !token["id"].is_number_integer())
                refuse("an added token has no `id`");
            set(token["id"].get<int64_t>(), text_at(token, "content"),
                flag_at(token, "special", false) ? GgufTokenKind::kControl
                                                 : GgufTokenKind::kUserDefined);
        }
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
        const GgufPieces* const found =
            gguf_pieces_with(steps, flag_at(json_["model"], "ignore_merges", false));
        if (found == nullptr)
            refuse(fmt::format("llama.cpp has no way to split texts as its pre-tokenizer does: {}",
                               printable(join(steps, ", "))));
        return *found;
    }

    void write_of_bytes() {
        for (const Json& step : steps_of(json_.value("normalizer", Json()), "normalizers"))
            if (text_at(step, "type") != "NFC")
                refuse(fmt::format("its normalizer `{}` cannot be written as GGUF",
                                   printable(text_at(step, "type"))));
        values_.add("tokenizer.ggml.model", "gpt2");
        values_.add("tokenizer.ggml.pre", std::string_view(pieces().name));
        values_.add("tokenizer.ggml.tokens", texts_);
        values_.add("tokenizer.ggml.token_type", kinds_);
        std::vector<std::string> merges;
        for (const auto& [left, right] : merges_) merges.push_back(left + " " + right);
        values_.add("tokenizer.ggml.merges", merges);
    }

    // Returns true if a blank is put in front of texts. Refuses steps that do something else than
    // SentencePiece.
    [[nodiscard]] bool puts_blank() const {
        bool puts = false;
        for (const Json& step : steps_of(json_.value("normalizer", Json()), "normalizers")) {
            const std::string type = text_at(step, "type");
            const bool is_meta = type == "Replace" && step.contains("pattern") &&
                                 text_at(step["pattern"], "String") == " " &&
                                 text_at(step, "content") == "▁";
            if (type == "Prepend" && text_at(step, "prepend") == "▁") {
                puts = true;
            } else if (!is_meta) {
                refuse(
                    fmt::format("its normalizer `{}` cannot be written as GGUF", printable(type)));
            }
        }
        for (const Json& step : steps_of(json_.value("pre_tokenizer", Json()), "pretokenizers")) {
            const std::string type = text_at(step, "type");
            // Gemma's step finds no blank, because they were replaced before.
            const bool is_idle = type == "Split" && step.contains("pattern") &&
                                 text_at(step["pattern"], "String") == " ";
            if (type == "Metaspace") {
                puts = puts || text_at(step, "prepend_scheme") != "never";
            } else if (!is_idle) {
                refuse(fmt::format("its pre-tokenizer `{}` cannot be written as GGUF",
                                   printable(type)));
            }
        }
        if (text_at(config_, "tokenizer_class").starts_with("LlamaTokenizer"))
            puts = flag_at(config_, "add_prefix_space", true);
        return puts;
    }

    void write_of_characters() {
        if (!flag_at(json_["model"], "byte_fallback", false))
            refuse("its model has no `byte_fallback`, without which it cannot be written as GGUF");
        const bool puts = puts_blank();
        std::vector<float> scores(texts_.size());
        // SentencePiece joins the pair that makes the token with the highest score.
        std::unordered_map<std::string, float> ranks;
        for (const auto& [left, right] : merges_)
            ranks.emplace(left + right, -static_cast<float>(ranks.size() + 1));
        for (size_t id = 0; id < texts_.size(); ++id) {
            const std::string& text = texts_[id];
            auto& kind = kinds_[id];
            if (text.size() == 6 && text.starts_with("<0x") && text.ends_with(">"))
                kind = static_cast<int32_t>(GgufTokenKind::kByte);
            if (text == text_at(json_["model"], "unk_token"))
                kind = static_cast<int32_t>(GgufTokenKind::kUnknown);
            const auto rank = ranks.find(text);
            scores[id] = kind == static_cast<int32_t>(GgufTokenKind::kNormal)
                             ? rank != ranks.end() ? rank->second
                                                   : -static_cast<float>(ranks.size() + 1 + id)
                         : kind == static_cast<int32_t>(GgufTokenKind::kByte) ? 0
                                                                              : kControlScore;
        }
        values_.add("tokenizer.ggml.model", "llama");
        values_.add("tokenizer.ggml.pre", "default");
        values_.add("tokenizer.ggml.tokens", texts_);
        values_.add("tokenizer.ggml.scores", scores);
        values_.add("tokenizer.ggml.token_type", kinds_);
        values_.add("tokenizer.ggml.add_space_prefix", puts);
    }

    // Returns the number of the token that CONFIG names at KEY.
    [[nodiscard]] std::optional<int32_t> special(const char* key) const {
        const auto found = ids_.find(text_at(config_, key));
        if (found == ids_.end()) return std::nullopt;
        return found->second;
    }

    // Returns the tokens that are put before (FIRST) or after every text.
    [[nodiscard]] std::vector<std::string> around(bool first) const {
        const Json post = json_.value("post_processor", Json());
        for (const Json& step : steps_of(post, "processors")) {
            if (text_at(step, "type") != "TemplateProcessing" || !step.contains("single")) continue;
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
    std::vector<std::pair<std::string, std::string>> merges_;
};

}  // namespace

void add_tokenizer_values(const std::string& folder, int64_t vocabulary, GgufValues& values) {
    std::error_code unreadable;
    if (!std::filesystem::exists(folder + "/tokenizer.json", unreadable)) {
        values.add("tokenizer.ggml.model", "none");
        return;
    }
    TokenizerWriter(folder, vocabulary, values).write();
}

}  // namespace dslaunch::storage
