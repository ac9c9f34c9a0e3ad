# Scores and PIT histograms by surveillance, from code independent of this package; run in this folder:
#   Rscript surveillance_scores.R
# surveillance_scores.csv: one row an observation; size is empty for the Poisson law, 1 / alpha for the Negative Binomial.
# surveillance_pit.csv: non-randomised PIT histograms of those observations, law by law, with 4, 10 and 20 bins.
suppressMessages(library(surveillance))

set.seed(20090127)
n <- 60
# Six digits, so that %g prints them exactly.
mu <- signif(exp(runif(n, log(0.05), log(300))), 6)
size <- signif(exp(runif(n, log(0.3), log(50))), 6)
# Wider and higher than the laws say, so that the histograms are not flat.
y <- rnbinom(n, mu = 1.2 * mu, size = 20)
laws <- list(poisson = NULL, negative_binomial = size)

scores_of <- function(name) {
  found <- scores(y, mu, size = laws[[name]], which = c("logs", "dss", "ses"))
  # The tolerance only decides when a warning is given; the sums go to 40 standard deviations.
  rps <- surveillance:::rps(y, mu, size = laws[[name]])
  shown <- if (is.null(laws[[name]])) rep("", n) else sprintf("%g", size)
  sprintf("%s,%g,%s,%d,%.17g,%.17g,%.17g,%.17g", name, mu, shown, y,
          found[, "logs"], rps, found[, "dss"], found[, "ses"])
}

histogram_of <- function(name, bins) {
  found <- if (is.null(laws[[name]])) pit(y, "ppois", J = bins, lambda = mu, plot = FALSE)
           else pit(y, "pnbinom", J = bins, mu = mu, size = size, plot = FALSE)
  sprintf("%s,%d,%d,%.17g", name, as.integer(bins), seq_len(bins), found$density)
}

names <- c("poisson", "negative_binomial")
writeLines(c("law,mu,size,y,logs,rps,dss,ses", unlist(lapply(names, scores_of))), "surveillance_scores.csv")
each <- expand.grid(bins = c(4, 10, 20), name = names, stringsAsFactors = FALSE)
writeLines(c("law,bins,bin,height", unlist(Map(histogram_of, each$name, each$bins))), "surveillance_pit.csv")
