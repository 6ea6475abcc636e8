// Bytes between hosts, as a rank counts them.
#pragma once

#include "base/bytes.h"

namespace dslaunch::runtime {

// What this rank has sent to and received from other hosts, payload only.
struct Traffic {
    Bytes sent;
    Bytes received;
};

}  // namespace dslaunch::runtime
