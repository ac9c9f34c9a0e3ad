# Table of Double Poisson values by rmutil (m = mu, s = gamma), to stdout:
#   Rscript rmutil_double_poisson.R > rmutil_double_poisson.csv
# Left out: log_pmf above -1e-7 (only y = 0 at mu = 0.05, gamma = 20: truth -1.7e-18, rmutil 0), lost to rounding.

# rmutil divides by the sum of the weights over 0..3*max(y, 100), the maximum being that of the
# whole vector, so small y alone cut a wide law short. A large y at the end moves the cut to 30000; the widest
# law here, mu = 400 and gamma = 0.05, is down to 1e-100 of its peak by 3600. The large y's own row is dropped.
SENTINEL <- 10000

rows_of <- function(mu, gamma) {
  sd <- sqrt(mu / gamma)
  y <- c(0, if (mu < 3) 1:3, round(mu + c(-3, 0, 2, 8) * sd))
  y <- sort(unique(y[y >= 0]))
  padded <- c(y, SENTINEL)
  data.frame(
    mu = mu, gamma = gamma, y = y,
    log_pmf = head(rmutil::ddoublepois(padded, mu, gamma, log = TRUE), -1),
    cdf = head(rmutil::pdoublepois(padded, mu, gamma), -1)
  )
}

grid <- expand.grid(
  gamma = c(0.05, 0.2, 0.5, 1, 2, 5, 20),
  mu = c(0.05, 0.5, 1, 2.5, 5, 10, 30, 100, 400)
)
table <- do.call(rbind, Map(rows_of, grid$mu, grid$gamma))
table <- table[table$log_pmf < -1e-7, ]

cat("mu,gamma,y,log_pmf,cdf\n")
cat(sprintf("%g,%g,%d,%.17g,%.17g\n", table$mu, table$gamma, as.integer(table$y), table$log_pmf, table$cdf), sep = "")
