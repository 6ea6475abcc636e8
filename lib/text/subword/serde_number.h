// The number that Rust's serde_json makes of a decimal text. It rounds twice, so that one text in
// eight gives a neighbour of the nearest double, and two ways through a text of nearly equal scores
// may change places by that.
#pragma once

namespace dslaunch::text {

// NEAREST: the double nearest to a text that is the shortest one for it, as Python and Rust write
// numbers. REQUIRES: finite.
[[nodiscard]] double as_serde_reads(double nearest);

}  // namespace dslaunch::text
