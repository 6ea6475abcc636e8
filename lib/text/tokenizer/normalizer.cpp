#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/growth.h"
#include "text/tokenizer/step_fields.h"
#include "text/unicode/code_points.h"
#include "text/unicode/normal_form.h"

namespace dslaunch::text {
namespace {

// Rewrites NORMAL character by character: WRITE(out, point) appends the text that replaces POINT.
template <typename Write>
void rewrite(NormalText& normal, const Write& write) {
    AlignedText out;
    out.reserve(normal.text.size() + 16);
    for (size_t i = 0; i < normal.text.size();) {
        const uint32_t place = normal.from[i];
        write(out.text, next_point(normal.text, i));
        require_room(out.text.size(), normal.bytes_max);
        out.settle(place);
    }
    normal.become(std::move(out));
}

class Rewriter : public Normalizer {
  public:
    using Write = std::function<void(std::string& out, char32_t point)>;
    explicit Rewriter(Write write) : write_(std::move(write)) {}
    void apply(NormalText& normal) const override { rewrite(normal, write_); }

  private:
    Write write_;
};

void to_form(NormalText& normal, NormalForm form) {
    if (is_ascii(normal.text)) return;
    AlignedText out;
    out.text = to_normal_form(normal.text, form, &out.from);
    require_room(out.text.size(), normal.bytes_max);
    for (uint32_t& place : out.from) place = normal.from[place];
    normal.become(std::move(out));
}

class FormNormalizer : public Normalizer {
  public:
    explicit FormNormalizer(NormalForm form) : form_(form) {}
    void apply(NormalText& normal) const override { to_form(normal, form_); }

  private:
    NormalForm form_;
};

class Lowercase : public Normalizer {
  public:
    void apply(NormalText& normal) const override {
        if (!is_ascii(normal.text)) return rewrite(normal, append_lower);
        for (char& c : normal.text)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
};

bool is_space(char32_t point) {
    return (CodePoints::table().flags(point) & kSpaceFlag) != 0;
}

class StripNormalizer : public Normalizer {
  public:
    StripNormalizer(bool left, bool right) : strips_left_(left), strips_right_(right) {}

    void apply(NormalText& normal) const override {
        const std::string_view text = normal.text;
        size_t begin = 0;
        size_t end = text.size();
        for (size_t i = 0; strips_left_ && begin < end; begin = i)
            if (!is_space(next_point(text, i))) break;
        while (strips_right_ && end > begin) {
            size_t last = previous_begin(text, end);
            const size_t at = last;
            if (!is_space(next_point(text, last))) break;
            end = at;
        }
        AlignedText out;
        out.append(text.substr(begin, end - begin),
                   std::span<const uint32_t>(normal.from).subspan(begin, end - begin));
        normal.become(std::move(out));
    }

  private:
    bool strips_left_;
    bool strips_right_;
};

class Replace : public Normalizer {
  public:
    Replace(std::unique_ptr<const Pattern> pattern, std::string content)
        : pattern_(std::move(pattern)), content_(std::move(content)) {}

    void apply(NormalText& normal) const override {
        std::vector<Match> matches;
        pattern_->find_all(normal.text, matches);
        if (matches.empty()) return;
        const std::string_view text = normal.text;
        const std::span<const uint32_t> from = normal.from;
        AlignedText out;
        out.reserve(text.size());
        size_t last = 0;
        const auto keep = [&](size_t end) {
            out.append(text.substr(last, end - last), from.subspan(last, end - last));
        };
        for (const Match& match : matches) {
            keep(match.begin);
            // If characters are replaced, the new text gets the place of the last replaced
            // character. If the match is empty, the new text gets the place of the character before
            // it.
            const size_t last_byte = match.end > 0 ? match.end - 1 : 0;
            out.append(content_, from.empty() ? 0 : from[last_byte]);
            require_room(out.text.size(), normal.bytes_max);
            last = match.end;
        }
        keep(text.size());
        normal.become(std::move(out));
    }

  private:
    std::unique_ptr<const Pattern> pattern_;
    std::string content_;
};

class Prepend : public Normalizer {
  public:
    explicit Prepend(std::string text) : text_(std::move(text)) {}
    void apply(NormalText& normal) const override {
        if (normal.text.empty()) return;
        require_room(normal.text.size() + text_.size(), normal.bytes_max);
        normal.text.insert(0, text_);
        normal.from.insert(normal.from.begin(), text_.size(), normal.from.front());
    }

  private:
    std::string text_;
};

bool is_chinese(char32_t point) {
    constexpr std::pair<char32_t, char32_t> kRanges[] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    return std::any_of(std::begin(kRanges), std::end(kRanges), [&](const auto& range) {
        return point >= range.first && point <= range.second;
    });
}

struct BertChoices {
    bool cleans = true;
    bool spaces_chinese = true;
    bool strips_accents = true;
    bool lowers = true;
};

class BertNormalizer : public Normalizer {
  public:
    explicit BertNormalizer(BertChoices choices) : choices_(choices) {}

    void apply(NormalText& normal) const override {
        const CodePoints& points = CodePoints::table();
        if (choices_.cleans)
            rewrite(normal, [&](std::string& out, char32_t point) {
                const uint32_t flags = points.flags(point);
                if (flags & kDroppedFlag) return;
                append_utf8(out, flags & kSpaceFlag ? ' ' : point);
            });
        if (choices_.spaces_chinese && !is_ascii(normal.text))
            rewrite(normal, [](std::string& out, char32_t point) {
                const char* blank = is_chinese(point) ? " " : "";
                out += blank;
                append_utf8(out, point);
                out += blank;
            });
        if (choices_.strips_accents && !is_ascii(normal.text)) {
            to_form(normal, NormalForm::kNfd);
            rewrite(normal, [&](std::string& out, char32_t point) {
                if (!(points.flags(point) & kNonspacingFlag)) append_utf8(out, point);
            });
        }
        if (choices_.lowers) Lowercase().apply(normal);
    }

  private:
    BertChoices choices_;
};

void write_nmt(std::string& out, char32_t point) {
    const bool is_dropped = (point >= 0x1 && point <= 0x8) || point == 0xB ||
                            (point >= 0xE && point <= 0x1F) || point == 0x7F || point == 0x8F ||
                            point == 0x9F;
    if (is_dropped) return;
    const bool is_blank = point == 0x9 || point == 0xA || point == 0xC || point == 0xD ||
                          point == 0x1680 || (point >= 0x200B && point <= 0x200F) ||
                          point == 0x2028 || point == 0x2029 || point == 0x2581 ||
                          point == 0xFEFF || point == kReplacement;
    append_utf8(out, is_blank ? ' ' : point);
}

void write_without_accents(std::string& out, char32_t point) {
    if (!(CodePoints::table().flags(point) & kCombiningFlag)) append_utf8(out, point);
}

void write_byte_characters(std::string& out, char32_t point) {
    std::string one;
    append_utf8(one, point);
    append_characters(out, one);
}

std::unique_ptr<const Normalizer> read_bert(const JsonPlace& place) {
    expect_step_fields(
        place, {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    BertChoices choices;
    choices.cleans = place.at("clean_text").boolean();
    choices.spaces_chinese = place.at("handle_chinese_chars").boolean();
    choices.lowers = place.at("lowercase").boolean();
    choices.strips_accents =
        place.has("strip_accents") ? place.at("strip_accents").boolean() : choices.lowers;
    return std::make_unique<BertNormalizer>(choices);
}

std::unique_ptr<const Normalizer> read_one_normalizer(const JsonPlace& place,
                                                      const std::string& type) {
    const auto simple = [&](auto&& made) {
        expect_step_fields(place, {"type"});
        return std::forward<decltype(made)>(made);
    };
    const auto rewriter = [&](Rewriter::Write write) {
        return simple(std::make_unique<Rewriter>(std::move(write)));
    };
    const auto form = [&](NormalForm wanted) {
        return simple(std::make_unique<FormNormalizer>(wanted));
    };
    if (type == "NFC") return form(NormalForm::kNfc);
    if (type == "NFD") return form(NormalForm::kNfd);
    if (type == "NFKC") return form(NormalForm::kNfkc);
    if (type == "NFKD") return form(NormalForm::kNfkd);
    if (type == "Lowercase") return simple(std::make_unique<Lowercase>());
    if (type == "StripAccents") return rewriter(write_without_accents);
    if (type == "Nmt") return rewriter(write_nmt);
    if (type == "ByteLevel") {  // fields of the pre-tokenizer ByteLevel are ignored
        expect_step_fields(place, {"type"});
        return std::make_unique<Rewriter>(write_byte_characters);
    }
    if (type == "BertNormalizer" || type == "Bert") return read_bert(place);
    if (type == "Precompiled") return read_precompiled(place);
    if (type == "Strip") {
        expect_step_fields(place, {"type", "strip_left", "strip_right"});
        return std::make_unique<StripNormalizer>(place.at("strip_left").boolean(),
                                                 place.at("strip_right").boolean());
    }
    if (type == "Prepend") {
        expect_step_fields(place, {"type", "prepend"});
        return std::make_unique<Prepend>(short_text(place.at("prepend")));
    }
    if (type == "Replace") {
        expect_step_fields(place, {"type", "pattern", "content"});
        return std::make_unique<Replace>(read_pattern(place.at("pattern")),
                                         short_text(place.at("content")));
    }
    place.refuse(fmt::format("the normalizer `{}` is not known to this version", printable(type)));
}

}  // namespace

void read_normalizers(const JsonPlace& place,
                      std::vector<std::unique_ptr<const Normalizer>>& steps) {
    for_steps(place, "normalizers", [&](const JsonPlace& step, const std::string& type) {
        steps.push_back(read_one_normalizer(step, type));
    });
}

NormalText normal_text(std::string_view text, uint32_t begin, size_t bytes_max) {
    NormalText normal;
    normal.text = text;
    normal.bytes_max = bytes_max;
    append_places(text, begin, normal.from);
    return normal;
}

}  // namespace dslaunch::text
