/*
 * answers: a server with checkable work. Answers each number N on its standard input by "F MISTAKES ROUNDS": F is
 * folded(N); ROUNDS is how often its four workers have done all their work, MISTAKES how often that came out wrong. A
 * worker allocates, keeps maps and strings, throws and catches.
 */
#include "testprog.h"

#include <atomic>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr int kTurns = 20000, kWorkers = 4, kNumbers = 50;

std::atomic<unsigned long> mistakes{0}, rounds{0};
std::mutex table_mutex;
std::map<std::string, long> table;

EXACT long folded(long number)
{
    long x = number;
    for (int i = 0; i < kTurns; i++)
        x = (x * 31 + i) % 65521;
    return x;
}

/* The first answer for a number is kept; later ones are compared with it. */
EXACT void check(long number)
{
    std::string key = "the answer for " + std::to_string(number);
    long result = folded(number);
    std::lock_guard<std::mutex> guard(table_mutex);
    auto place = table.emplace(key, result);
    if (place.first->second != result)
        throw std::logic_error(key);
    if (number % 10 == 0)
        throw std::out_of_range(key);
}

void work()
{
    for (long number = 0;; number = (number + 1) % kNumbers) {
        try {
            check(number);
        } catch (const std::out_of_range &expected) {
            if (expected.what() != "the answer for " + std::to_string(number))
                mistakes++;
        } catch (const std::logic_error &) {
            mistakes++;
        }
        if (number == 0)
            rounds++;
    }
}

} // namespace

int main()
{
    for (int i = 0; i < kWorkers; i++)
        std::thread(work).detach();
    ready("");
    for (long number; std::cin >> number;) {
        long result = std::async(std::launch::async, folded, number).get();
        std::cout << result << ' ' << mistakes << ' ' << rounds << std::endl;
    }
    _exit(0);
}
