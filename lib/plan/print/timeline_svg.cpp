#include "plan/print/timeline_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/text.h"

namespace dslaunch::plan {
namespace {

// Okabe and Ito's colours, which most people with colour blindness can tell apart.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"};
constexpr double kShadeStep = 0.38;  // fraction by which a shade is lighter than the previous shade

// Sizes in the picture. UNITS: pixels.
constexpr double kMargin = 12;
constexpr double kRowHeight = 26;
constexpr double kRowGap = 6;
constexpr double kCharacterWidth = 7;
constexpr double kMarkRoom = 9;  // width of a mark's first character with margins
constexpr double kPlotWidthMin = 640;
constexpr double kPlotWidthMax = 6000;
constexpr double kTop = 62;
constexpr double kBottom = 34;

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : printable(text))
        safe += c == '&'    ? "&amp;"
                : c == '<'  ? "&lt;"
                : c == '>'  ? "&gt;"
                : c == '"'  ? "&quot;"
                : c == '\t' ? " "
                            : std::string(1, c);
    return safe;
}

double text_width(std::string_view text) {
    return kCharacterWidth * static_cast<double>(text.size());
}

std::string colour(int kind) {
    return kColours[static_cast<size_t>(kind) % kColours.size()];
}

double opacity(int shade) {
    return std::max(0.2, 1 - kShadeStep * shade);
}

struct TimeUnit {
    double seconds;
    const char* name;
};

TimeUnit unit_for(double end_s) {
    if (end_s >= 2) return {1, "s"};
    if (end_s >= 2e-3) return {1e-3, "ms"};
    return {1e-6, "us"};
}

// Returns the smallest step with which at most AT_MOST steps cover WHOLE. The step is 1, 2 or 5
// times a power of ten.
double tick_step(double whole, double at_most) {
    const double least = whole / at_most;
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= least) return factor * power;
    return 10 * power;
}

class Picture {
  public:
    explicit Picture(const Timeline& timeline)
        : timeline_(timeline),
          lanes_(timeline.lanes.begin(),
                 timeline.lanes.begin() +
                     std::min<std::ptrdiff_t>(std::ssize(timeline.lanes), kTimelineLanesMax)) {
        size_t remark = 0;
        std::vector<double> lengths_s;
        for (const TimelineLane& lane : lanes_) {
            left_ = std::max(left_, kMargin + text_width(lane.name) + 8);
            remark = std::max(remark, lane.remark.size());
            for (const TimelineSpan& span : lane.spans) {
                end_s_ = std::max(end_s_, span.end_s);
                if (span.end_s <= span.begin_s || span.mark.empty()) continue;
                // The number of pixels per second that the span's box needs for its mark.
                const double room = kMarkRoom + text_width(span.mark);
                lengths_s.push_back(room / (span.end_s - span.begin_s));
            }
        }
        if (end_s_ <= 0) end_s_ = 1;
        double per_second = 0;
        if (!lengths_s.empty()) {
            const auto most = lengths_s.begin() + std::ssize(lengths_s) * 9 / 10;
            std::nth_element(lengths_s.begin(), most, lengths_s.end());
            per_second = *most;
        }
        plot_ = std::clamp(per_second * end_s_, kPlotWidthMin, kPlotWidthMax);
        right_ = 8 + kCharacterWidth * static_cast<double>(remark) + kMargin;
        bottom_ = kTop + static_cast<double>(lanes_.size()) * (kRowHeight + kRowGap);
    }

    std::string draw() {
        const double width = left_ + plot_ + right_;
        const double height = bottom_ + kBottom + (left_out() > 0 ? 18 : 0);
        text_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
            "width=\"{0:.0f}\" height=\"{1:.0f}\" style=\"max-width:100%\" "
            "font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"11\" fill=\"#222\">\n"
            "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            width, height);
        write(kMargin, 20, timeline_.title, "font-size=\"14\" font-weight=\"bold\"");
        draw_legend();
        draw_axis();
        for (size_t lane = 0; lane < lanes_.size(); ++lane) draw_lane(lane);
        if (left_out() > 0)
            write(kMargin, bottom_ + kBottom + 8, fmt::format("and {} more", left_out()), "");
        return text_ + "</svg>\n";
    }

  private:
    [[nodiscard]] std::ptrdiff_t left_out() const {
        return std::ssize(timeline_.lanes) - std::ssize(lanes_);
    }
    [[nodiscard]] double x_of(double time_s) const { return left_ + plot_ * time_s / end_s_; }

    void write(double x, double y, std::string_view text, std::string_view attributes) {
        text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                             escaped(text));
    }
    void box(double x, double y, std::string_view fill, double shade) {
        text_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" fill=\"{}\" "
            "fill-opacity=\"{:.2f}\"/>\n",
            x, y, fill, shade);
    }

    void draw_legend() {
        double x = kMargin;
        const auto entry = [&](std::string_view name, std::string_view fill, double shade) {
            box(x, 32, fill, shade);
            write(x + 19, 42, name, "");
            x += 19 + text_width(name) + 18;
        };
        for (size_t kind = 0; kind < timeline_.kinds.size(); ++kind)
            entry(timeline_.kinds[kind], colour(static_cast<int>(kind)), 1);
        entry("idle", "#e4e4e4", 1);
        if (timeline_.shades.size() < 2) return;
        for (size_t shade = 0; shade < timeline_.shades.size(); ++shade)
            entry(timeline_.shades[shade], "#555", opacity(static_cast<int>(shade)));
    }

    void draw_axis() {
        const TimeUnit unit = unit_for(end_s_);
        const double whole = end_s_ / unit.seconds;
        const double step = tick_step(whole, plot_ / 90);
        for (int tick = 0; tick * step <= whole * (1 + 1e-9); ++tick) {
            const double x = x_of(tick * step * unit.seconds);
            text_ += fmt::format(
                "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
                "stroke=\"#aaa\"/>\n",
                x, kTop - 6, bottom_ + 4);
            write(x, bottom_ + 18, fmt::format("{:.6g} {}", tick * step, unit.name),
                  "text-anchor=\"middle\"");
        }
    }

    void draw_lane(size_t index) {
        const TimelineLane& lane = lanes_[index];
        const double y = kTop + static_cast<double>(index) * (kRowHeight + kRowGap);
        const double text_y = y + kRowHeight / 2 + 4;
        write(left_ - 8, text_y, lane.name, "text-anchor=\"end\"");
        text_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
            "fill=\"#e4e4e4\"/>\n",
            left_, y, plot_, kRowHeight);
        for (const TimelineSpan& span : lane.spans) draw_span(span, y);
        write(left_ + plot_ + 8, text_y, lane.remark, "");
    }

    void draw_span(const TimelineSpan& span, double y) {
        const double x = x_of(span.begin_s);
        const double width = x_of(span.end_s) - x;
        if (width <= 0) return;
        // The box gets a white background: its colour may be transparent, and must not mix with
        // grey.
        text_ += fmt::format(
            "<g><title>{}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
            "height=\"{:.1f}\" fill=\"#fff\"/><rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
            "height=\"{:.1f}\" fill=\"{}\" fill-opacity=\"{:.2f}\"/>",
            escaped(span.note), x, y, width, kRowHeight, x, y, std::max(width - 0.6, width * 0.6),
            kRowHeight, colour(span.kind), opacity(span.shade));
        if (width >= text_width(span.mark) + 2 && !span.mark.empty())
            text_ += fmt::format(
                "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                x + width / 2, y + kRowHeight / 2 + 4, span.shade == 0 ? "#fff" : "#222",
                escaped(span.mark));
        text_ += "</g>\n";
    }

    const Timeline& timeline_;
    std::span<const TimelineLane> lanes_;
    std::string text_;
    double left_ = kMargin;
    double right_ = kMargin;
    double plot_ = kPlotWidthMin;
    double bottom_ = kTop;
    double end_s_ = 0;
};

}  // namespace

std::string timeline_svg(const Timeline& timeline) {
    return Picture(timeline).draw();
}

}  // namespace dslaunch::plan
