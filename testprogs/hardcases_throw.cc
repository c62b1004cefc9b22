/* C++ exceptions: the unwinder of the C++ library takes the loader's lock and allocates. */
#include "hardcases.h"

#include <stdexcept>
#include <string>

namespace
{

EXACT int throw_below(unsigned depth, unsigned long turn)
{
    std::string held = "held by frame " + std::to_string(depth);
    if (depth == 0) {
        if (turn % 2 == 0)
            throw std::out_of_range(held);
        throw turn;
    }
    return throw_below(depth - 1, turn) + static_cast<int>(held.size());
}

} // namespace

bool load_throw(unsigned long turn)
{
    try {
        throw_below(static_cast<unsigned>(turn % 9), turn);
    } catch (const std::out_of_range &error) {
        return turn % 2 == 0 && std::string("held by frame 0") == error.what();
    } catch (unsigned long thrown) {
        return turn % 2 == 1 && thrown == turn;
    }
    return false;
}
