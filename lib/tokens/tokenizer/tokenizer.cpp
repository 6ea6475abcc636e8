#include "tokens/tokenizer/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "tokens/tokenizer/token_stream.h"
#include "tokens/tokenizer/tokenizer_parts.h"
#include "tokens/unicode/code_points.h"

namespace dslaunch::tokens {
namespace {

constexpr std::streamoff kFileBytesMax = 1 << 29;
constexpr size_t kTextBytesMax = std::numeric_limits<int32_t>::max();

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(ExitCode::kInput, "{}: it cannot be opened; is it there?", path);
    in.seekg(0, std::ios::end);
    const std::streamoff bytes = in.tellg();
    if (bytes < 0 || bytes > kFileBytesMax)
        fail(ExitCode::kInput, "{}: {} bytes are too many for a tokenizer.json", path,
             static_cast<int64_t>(bytes));
    std::string text(static_cast<size_t>(bytes), '\0');
    in.seekg(0);
    in.read(text.data(), bytes);
    if (!in) fail(ExitCode::kInput, "{}: it cannot be read to its end", path);
    return text;
}

}  // namespace

Tokenizer::Parts::Parts(const JsonPlace& place) {
    place.expect_object({"version", "truncation", "padding", "added_tokens", "normalizer",
                         "pre_tokenizer", "post_processor", "decoder", "model"});
    if (place.has("version") && place.at("version").text() != "1.0")
        place.at("version").refuse("1.0 is the only version that is known");
    const JsonPlace model_place = place.at("model");
    const bool is_bpe = model_type(model_place) == "BPE";
    if (place.has("normalizer")) read_normalizers(place.at("normalizer"), normalizers);
    if (place.has("pre_tokenizer"))
        pre_tokenizers = read_pre_tokenizers(place.at("pre_tokenizer"), {is_bpe});
    model = read_model(model_place, {is_bpe && pre_tokenizers.ends_in_bytes});
    if (place.has("added_tokens"))
        added = AddedTokens(place.at("added_tokens"), model->vocabulary(), normalizers);
    finder = std::make_unique<TokenFinder>(added.all(), false);
    normal_finder = std::make_unique<TokenFinder>(added.all(), true);
    post_parts = place.has("post_processor") ? read_post_processor(place.at("post_processor"))
                                             : std::vector<PostPart>{{true, {}}};
    decoder = place.has("decoder") ? read_decoder(place.at("decoder")) : blank_decoder();
    int64_t end = model->vocabulary().ids_end();
    for (const AddedToken& token : added.all()) end = std::max<int64_t>(end, token.id + 1);
    specials.resize(static_cast<size_t>(end));
    for (int64_t id = 0; id < end; ++id) {
        const auto text = text_of(static_cast<int32_t>(id));
        specials[static_cast<size_t>(id)] = text && added.is_special(*text);
    }
}

std::optional<std::string_view> Tokenizer::Parts::text_of(int32_t id) const {
    if (const AddedToken* token = added.find(id)) return token->normal;
    return model->vocabulary().text_of(id);
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) {
    return parse(read_file(path), path);
}

Tokenizer Tokenizer::parse(std::string_view text, const std::string& name) {
    const JsonPlace::Json json = JsonPlace::parse(name, text);
    return Tokenizer(std::make_unique<const Parts>(JsonPlace(name, json)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    std::vector<int32_t> out;
    encode_to(text, options, out);
    return out;
}

void Tokenizer::encode_to(std::string_view text, EncodeOptions options,
                          std::vector<int32_t>& out) const {
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
    parts_->encode_text(text, *scratch);
    for (const PostPart& part : parts_->post_parts) {
        if (part.is_text) {
            out.insert(out.end(), scratch->ids.begin(), scratch->ids.end());
        } else if (options.add_special_tokens) {
            out.insert(out.end(), part.ids.begin(), part.ids.end());
        }
    }
    parts_->pool.give_back(std::move(scratch));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    TokenStream stream(*this, skip_special);
    std::string out;
    for (const int32_t id : ids) stream.append_to(id, out);
    out += stream.finish();
    return out;
}

int64_t Tokenizer::vocab_size() const {
    int64_t count = parts_->model->vocabulary().tokens_count();
    for (const AddedToken& token : parts_->added.all())
        count += parts_->model->vocabulary().find(token.text) == kNoToken;
    return count;
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

}  // namespace dslaunch::tokens
