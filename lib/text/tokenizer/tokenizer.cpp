#include "text/tokenizer/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/json_place.h"
#include "base/text/tokenizer_class.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 29;
constexpr size_t kTextBytesMax = std::numeric_limits<int32_t>::max();

[[noreturn]] void fail_without_tokenizer(const std::string& folder) {
    std::error_code unreadable;
    if (std::filesystem::exists(folder + "/tokenizer.model", unreadable))
        fail(ExitCode::kInput,
             "{0}: has tokenizer.model but not tokenizer.json, which dslaunch reads; make it in "
             "Python: transformers.AutoTokenizer.from_pretrained(\"{0}\").save_pretrained(\"{0}\")",
             printable(folder));
    if (const auto fault = download_fault_at(folder + "/tokenizer.json"); !fault.empty())
        fail(ExitCode::kInput, "{}/tokenizer.json: {}", printable(folder), fault);
    fail(ExitCode::kInput,
         "{}: has no tokenizer.json; copy it into the folder from the model's files on the hub",
         printable(folder));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) {
    return parse(read_file(path, kFileBytesMax), path);
}

Tokenizer Tokenizer::of_folder(const std::string& folder) {
    const auto json_of = [&](const char* name) -> JsonPlace::Json {
        const std::string path = fmt::format("{}/{}", folder, name);
        std::error_code unreadable;
        if (!std::filesystem::exists(path, unreadable)) return nullptr;
        // If the JSON is not valid, the error is reported later, when other fields of the file are
        // read.
        return JsonPlace::Json::parse(read_file(path, kFileBytesMax), nullptr,
                                      /*allow_exceptions=*/false);
    };
    const std::string path = folder + "/tokenizer.json";
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) fail_without_tokenizer(folder);
    JsonPlace::Json json = JsonPlace::parse(path, read_file(path, kFileBytesMax));
    apply_tokenizer_class({json_of("tokenizer_config.json"), json_of("config.json")}, json);
    return Tokenizer(std::make_unique<const TokenizerParts>(JsonPlace(path, json)));
}

Tokenizer Tokenizer::parse(std::string_view text, const std::string& name) {
    const JsonPlace::Json json = JsonPlace::parse(name, text);
    return Tokenizer(std::make_unique<const TokenizerParts>(JsonPlace(name, json)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    std::vector<int32_t> out;
    encode_to(text, options, out);
    return out;
}

void Tokenizer::encode_to(std::string_view text, EncodeOptions options,
                          std::vector<int32_t>& out) const {
    encode_into(text, options, out, nullptr);
}

EncodedText Tokenizer::encode_spans(std::string_view text, EncodeOptions options) const {
    EncodedText encoded;
    encode_into(text, options, encoded.ids, &encoded.spans);
    return encoded;
}

void Tokenizer::encode_into(std::string_view text, EncodeOptions options, std::vector<int32_t>& out,
                            std::vector<TokenSpan>* spans) const {
    if (text.size() > kTextBytesMax)
        fail(ExitCode::kInput, "a text of {} bytes is too long for one call; cut it into lines",
             text.size());
    std::string valid;
    if (valid_utf8_prefix(text) != text.size()) {
        valid = replace_invalid_utf8(text);
        text = valid;
    }
    std::unique_ptr<EncodeScratch> scratch = parts_->pool.take();
    scratch->ids.clear();
    scratch->wants_spans = spans != nullptr;
    parts_->encode_text(text, *scratch);
    TokenSpan around;  // an empty span at the text's beginning, then at its end
    for (const PostPart& part : parts_->post_parts) {
        if (part.is_text) {
            out.insert(out.end(), scratch->ids.begin(), scratch->ids.end());
            if (spans != nullptr)
                spans->insert(spans->end(), scratch->spans.begin(), scratch->spans.end());
            around.begin_bytes = around.end_bytes = static_cast<uint32_t>(text.size());
        } else if (options.add_special_tokens) {
            out.insert(out.end(), part.ids.begin(), part.ids.end());
            if (spans != nullptr) spans->resize(out.size(), around);
        }
    }
    parts_->pool.give_back(std::move(scratch));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    DecoderRun run(parts_->decoder);
    std::string out;
    for (const int32_t id : ids) parts_->decode(id, skip_special, run, out);
    run.finish(out);
    return out;
}

int64_t Tokenizer::ids_end() const {
    return std::ssize(parts_->specials);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
    if (const AddedToken* added = parts_->added.find(token)) return added->id;
    const int32_t id = parts_->model->vocabulary().find(token);
    return id == kNoToken ? std::nullopt : std::optional(id);
}

std::optional<std::string> Tokenizer::token_of(int32_t id) const {
    const auto text = parts_->text_of(id);
    return text ? std::optional(std::string(*text)) : std::nullopt;
}

bool Tokenizer::is_special(int32_t id) const {
    return id >= 0 && id < ids_end() && parts_->specials[static_cast<size_t>(id)];
}

}  // namespace dslaunch::text
