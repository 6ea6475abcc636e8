#include "text/tokenizer/post_processor.h"

#include <fmt/core.h>

#include <string>

#include "base/text.h"
#include "text/tokenizer/step_fields.h"

namespace dslaunch::text {
namespace {

constexpr size_t kPartsMax = 64;

int32_t read_id(const JsonPlace& place) {
    const int64_t id = place.integer();
    if (id < 0 || id > kTokenIdMax) place.refuse("it is not a valid token number");
    return static_cast<int32_t>(id);
}

// Reads a token and its number: ["[SEP]", 102].
int32_t read_pair(const JsonPlace& place) {
    int at = 0;
    int32_t id = kNoToken;
    place.for_elements([&](const JsonPlace& cell) {
        if (at++ == 1) id = read_id(cell);
    });
    if (at != 2) place.refuse("expected a token and its number");
    return id;
}

std::vector<PostPart> read_template(const JsonPlace& place) {
    expect_step_fields(place, {"type", "single", "pair", "special_tokens"});
    std::vector<PostPart> parts;
    const JsonPlace tokens = place.at("special_tokens");
    place.at("single").for_elements([&](const JsonPlace& piece) {
        if (parts.size() == kPartsMax) piece.refuse("the template is too long");
        const auto [kind, content] = piece.only();
        PostPart part;
        const std::string& id = content.at("id").text();
        if (kind == "Sequence") {
            if (id != "A")
                content.refuse("the template of a single text may contain only the sequence A");
            part.is_text = true;
        } else if (kind == "SpecialToken") {
            tokens.at(id.c_str()).at("ids").for_elements([&](const JsonPlace& number) {
                if (part.ids.size() == kPartsMax) number.refuse("there are too many tokens");
                part.ids.push_back(read_id(number));
            });
        } else {
            piece.refuse(
                fmt::format("the piece `{}` is not known to this version", printable(kind)));
        }
        parts.push_back(std::move(part));
    });
    return parts;
}

void read_processor(const JsonPlace& place, const std::string& type, std::vector<PostPart>& parts) {
    if (type == "ByteLevel") return;  // it changes offsets only
    if (!parts.empty()) place.refuse("two steps that add tokens are not supported");
    if (type == "TemplateProcessing") {
        parts = read_template(place);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        expect_step_fields(place, {"type", "sep", "cls"});
        parts = {{false, {read_pair(place.at("cls"))}},
                 {true, {}},
                 {false, {read_pair(place.at("sep"))}}};
    } else {
        place.refuse(
            fmt::format("the post-processor `{}` is not known to this version", printable(type)));
    }
}

}  // namespace

std::vector<PostPart> read_post_processor(const JsonPlace& place) {
    std::vector<PostPart> parts;
    for_steps(place, "processors", [&](const JsonPlace& step, const std::string& type) {
        read_processor(step, type, parts);
    });
    if (parts.empty()) parts.push_back({true, {}});
    return parts;
}

}  // namespace dslaunch::text
