// A timeline as a picture: one row per lane (a stage of a pipeline, or a lane of a rank), one box
// for each span, grey where the lane was idle. Data path: simulator or trace -> [here] -> a file
// that every browser shows. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::plan {

// A box in a lane.
struct TimelineSpan {
    double begin_s = 0;
    double end_s = 0;
    int kind = 0;      // index into Timeline::kinds
    int shade = 0;     // shade of the colour, by chunk: 0 is the darkest
    std::string mark;  // text in the box, if it fits: "3"
    std::string note;  // shown when a pointer rests on the box
};

// A row of the picture.
struct TimelineLane {
    std::string name;
    std::string remark;  // text after the lane: "idle 27 %"
    std::vector<TimelineSpan> spans;
};

// The contents of a picture.
struct Timeline {
    std::string title;
    std::vector<std::string> kinds;   // for the legend; colours repeat from the sixth kind on
    std::vector<std::string> shades;  // for the legend, if there are several
    std::vector<TimelineLane> lanes;
};

// Returns one SVG that needs no other file, with about 150 bytes per span. It is wide enough for
// the marks in its boxes, within limits, and shrinks to fit a narrower page. It draws at most
// kTimelineLanesMax lanes and states how many are left out. Texts may contain any characters; times
// begin at 0.
[[nodiscard]] std::string timeline_svg(const Timeline& timeline);
inline constexpr int kTimelineLanesMax = 64;

}  // namespace dslaunch::plan
